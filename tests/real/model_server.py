"""llama.cpp's own server with a small model, on loopback: `python model_server.py MODEL.gguf PORT [SECONDS]`.

Runs with the interpreter of the real parts, which has `xllamacpp`. It samples greedily, so the same request
gets the same answer. It ends by itself after SECONDS (600).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import xllamacpp


def serve(model: str, port: int) -> xllamacpp.Server:
    """Loads the model and serves it from threads of its own."""
    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.model_alias = {"smollm2"}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.ui = False
    settings.n_ctx = 4096
    settings.n_parallel = 1
    # Threads of llama.cpp wait for each other by spinning, so two crawl on a machine with other work.
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.sampling.temp = 0.0
    settings.sampling.seed = 7
    settings.use_jinja = True
    settings.chat_template = (Path(__file__).parent / "chat_template.jinja").read_text()
    return xllamacpp.Server(settings)


if __name__ == "__main__":
    server = serve(sys.argv[1], int(sys.argv[2]))
    print("listening", server.listening_address, flush=True)
    time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 600)
