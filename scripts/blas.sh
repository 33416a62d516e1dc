#!/bin/sh
# Print the OpenBLAS that is worth preloading on Linux, or nothing: MLX's CPU wheel links one that is 100 times slower.
[ "$(uname -s)" = Linux ] || exit 0
for library in /usr/lib/"$(uname -m)"-linux-gnu/openblas-pthread/libblas.so.3 /usr/lib64/libopenblasp.so.0; do
    if [ -f "$library" ]; then
        echo "$library"
        exit 0
    fi
done
