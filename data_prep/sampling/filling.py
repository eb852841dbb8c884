import sys  # shim

from data_prep.sampling import store

sys.modules[__name__] = store
