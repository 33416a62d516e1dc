#!/bin/sh
# Print a Python 3.11 or newer that can make virtual environments: python3 itself, else the newest found.
for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
done
echo "nocka needs Python 3.11 or newer with the venv module (on Debian: apt-get install python3-venv)" >&2
exit 1
