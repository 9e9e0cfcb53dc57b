"""Speed of engines from raw logits to tokens, measured beside each other in one process on the same inputs.

`inputs` makes a batch of a shape, `steps` turns an engine's ops into one call, checks what it computes and counts the
bytes that it must read; `timing` runs several calls in turn; `rendering` shows the results. Times are of the CPU's
processor clock, or of CUDA graphs replayed on the GPU. The floor is the time of reading the needed rows at the
bandwidth measured in the same run.
"""
