import sys  # shim

from eval.harness import settings

sys.modules[__name__] = settings
