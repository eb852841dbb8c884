import sys  # shim

from data_prep.sampling import openai

sys.modules[__name__] = openai
