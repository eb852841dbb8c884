from data_prep.sampling import vllm  # shim

QUIET, choose_device, hushed = vllm.QUIET, vllm.choose_device, vllm.held_stderr
