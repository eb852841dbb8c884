import sys  # shim

from data_prep.sampling import problems

sys.modules[__name__] = problems
