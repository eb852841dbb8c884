import sys  # shim

from data_prep.sampling import settings

sys.modules[__name__] = settings
