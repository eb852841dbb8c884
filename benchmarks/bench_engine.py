from benchmarks.engine import Engine  # shim


def with_engine(trainer, is_stale):
    return lambda **kwargs: trainer(**kwargs, rollout_func=Engine(is_stale))
