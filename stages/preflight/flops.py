from benchmarks.flops import forward_flops, layer_weights, measured_peak, peak_flops, training_flops  # noqa: F401  # shim
