# Sourced by every script here.
# run_with PACKAGE==VERSION... <PROGRAM runs the program with the packages, which are installed in a
# temporary folder that is removed at the end. PYTHON names the interpreter.
set -euo pipefail

FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT

run_with() {
    "${PYTHON:-python3}" -m venv "$FOLDER/env"
    "$FOLDER/env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null
    mkdir "$FOLDER/work"
    cd "$FOLDER/work"
    TMPDIR=$FOLDER HF_HOME=$FOLDER OMP_NUM_THREADS=1 "$FOLDER/env/bin/python" -W ignore -
    cd /
}
