#!/bin/sh
# make_environment.sh PYTHON FOLDER: a virtual environment, whichever way this Python can make one.
set -e
python=$1
folder=$2
rm -rf "$folder"
if "$python" -c "import ensurepip, venv" 2>/dev/null; then
    "$python" -m venv "$folder"
elif "$python" -c "import virtualenv" 2>/dev/null; then
    "$python" -m virtualenv --quiet "$folder"
else
    # Debian's python3 with python3-pip but without python3-venv: pip may not touch the system's
    # packages, but it may fetch virtualenv into a folder of ours.
    tools=$folder.tools
    "$python" -m pip install --quiet --target "$tools" virtualenv
    PYTHONPATH=$tools "$python" -m virtualenv --quiet "$folder"
    rm -rf "$tools"
fi
