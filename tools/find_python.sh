#!/bin/sh
# Prints the Python interpreter that memonger is set up with, or says why there is none.
#   find_python.sh            the first fit one of python3, python3.11 .. python3.8
#   find_python.sh PROGRAM    that one, or a sentence why it is unfit
# Fit: CPython 3.8 to 3.11 (MXNet 1.9.1 needs numpy < 1.24, which has no later builds) that can
# make a virtual environment, with its own venv, with virtualenv, or with a pip to fetch that.

# Prints "ok", or what is wrong with interpreter $1 and what to do about it.
examine() {
    "$1" - 2>/dev/null <<'PYTHON' || echo "it does not run"
import sys
version = "%d.%d" % sys.version_info[:2]
def has(name):
    try:
        __import__(name)
        return True
    except Exception:
        return False
if not (3, 8) <= sys.version_info[:2] <= (3, 11):
    print("it is Python " + version + ", and MXNet 1.9.1 runs on 3.8 to 3.11 (numpy below 1.24 "
          "has no build for others); install python3.11 or name a fit one with PYTHON=")
elif not (has("venv") and has("ensurepip")) and not has("virtualenv") and not has("pip"):
    print("it can make no virtual environment (no ensurepip, no virtualenv, no pip); "
          "on Debian: apt install python3-venv")
else:
    print("ok")
PYTHON
}

if [ -n "$1" ]; then
    verdict=$(examine "$1")
    if [ "$verdict" = ok ]; then echo "$1"; exit 0; fi
    echo "error: cannot use PYTHON=$1: $verdict" >&2
    exit 1
fi
reasons=""
for candidate in python3 python3.11 python3.10 python3.9 python3.8 /usr/bin/python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    verdict=$(examine "$candidate")
    if [ "$verdict" = ok ]; then echo "$candidate"; exit 0; fi
    reasons="$reasons
  $candidate: $verdict"
done
echo "error: no fit Python was found; memonger needs Python 3.8 to 3.11, on Debian:" \
     "apt install python3 python3-venv$reasons" >&2
exit 1
