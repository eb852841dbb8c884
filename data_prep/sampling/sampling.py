import sys  # shim

from data_prep.sampling import hf

sys.modules[__name__] = hf
