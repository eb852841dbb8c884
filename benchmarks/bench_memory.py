from benchmarks.memory import main, run_cli  # shim

if __name__ == "__main__":
    run_cli(main)
