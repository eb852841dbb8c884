import sys  # shim

from data_prep.grading import pool

sys.modules[__name__] = pool
