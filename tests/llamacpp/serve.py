"""Serves a model with llama.cpp's own HTTP server, on a free port of 127.0.0.1.

    serve.py MODEL [--embeddings]

Prints the server's URL once it can be asked, and ends with its stdin.
"""

import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"tiny"}
parameters.hostnames = ["127.0.0.1"]
parameters.port = 0
# Four concurrent calls, each with the whole context of the model.
parameters.n_parallel = 4
parameters.n_ctx = 4 * 4096
parameters.n_gpu_layers = 0
parameters.warmup = False
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
# The prompt contains tools.
parameters.use_jinja = True
parameters.endpoint_metrics = parameters.endpoint_slots = True

if "--embeddings" in sys.argv:
    parameters.embedding = True
    parameters.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN

server = xllamacpp.Server(parameters)
print(server.listening_address, flush=True)
sys.stdin.read()
