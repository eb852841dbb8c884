import sys  # shim

from eval.harness import score

sys.modules[__name__] = score
