"""The plugin is loaded only into the MXNet it was built for, and a refusal changes nothing."""
from __future__ import annotations

import shutil
import subprocess

import pytest
from forked import python
from needed import BUILD_ADVICE

from memonger.mx import plugin as native

PLUGIN, CORE = "libmemonger_mxnet.so", "libmemonger_core.so"

#: Ends every child: MXNet still binds and trains, and is its stock self when `refused`.
STILL_WHOLE = """
import mxnet as mx
x = mx.sym.tanh(mx.sym.var("data"), name="a")
net = mx.sym.MakeLoss(mx.sym.square(x), name="loss")
net._set_attr(__memonger_recompute__="1")
e = net.simple_bind(mx.cpu(), data=(2, 2))
e.forward(is_train=True); e.backward(); mx.nd.waitall()
assert not hasattr(mx.sym, "memonger_mask_relu"), "operators were registered"
print("whole")
"""


@pytest.fixture
def run_forked(forked):
    """``run_forked(code, folder)`` is :func:`run` with MXNet imported already."""
    def run(code, folder=None, **environment):
        if folder is not None:
            environment["MEMONGER_NATIVE_DIR"] = str(folder)
        done = forked.run(code, **environment)
        done.stdout += done.stderr
        return done
    return run


def run(code, folder=None, **environment):
    """A process of its own that runs ``code``; libraries come from ``folder``."""
    if folder is not None:
        environment["MEMONGER_NATIVE_DIR"] = str(folder)
    return python("-c", code, **environment)


REFUSED = """
from memonger import native
from memonger.errors import MemongerError
try:
    native.load()
except MemongerError as error:
    print(type(error).__name__, error)
else:
    raise SystemExit("loaded")
assert not native.available()
assert native.status().startswith("not loaded: ")
assert native.backend() == "stock" and native.storage_model() == "stock"
""" + STILL_WHOLE


@pytest.fixture
def copies(tmp_path):
    """A folder with copies of both libraries, to be damaged."""
    for name in (PLUGIN, CORE):
        shutil.copy(str(native.folder() / name), str(tmp_path / name))
    return tmp_path


def check_refused(done, error, *words):
    assert done.returncode == 0, done.stdout
    assert "whole" in done.stdout
    line = next(line for line in done.stdout.splitlines() if line.startswith(error))
    for word in words:
        assert word in line


def test_nothing_built(run_forked, tmp_path):
    check_refused(run_forked(REFUSED, tmp_path), "PluginMissing", BUILD_ADVICE)


def cut(data):
    return data[:len(data) // 2]


def cut_a_little(data):
    return data[:-5000]


def altered(data):
    middle = len(data) // 3
    return data[:middle] + bytes(255 - byte for byte in data[middle:middle + 64]) + \
        data[middle + 64:]


def not_a_library(data):
    return b"\x7fELF" + b"\0" * 100


@pytest.mark.parametrize("damage", [cut, cut_a_little, altered, not_a_library, lambda data: b""],
                         ids=["cut", "cut a little", "altered", "no library", "empty"])
def test_a_damaged_plugin(run_forked, copies, damage):
    path = copies / PLUGIN
    path.write_bytes(damage(path.read_bytes()))
    check_refused(run_forked(REFUSED, copies), "PluginABIError", PLUGIN, "damaged", "reinstall")


def test_a_stripped_plugin_loads(run_forked, copies):
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip")
    subprocess.run([strip, str(copies / PLUGIN)], check=True)
    done = run_forked("from memonger import native; native.load(); print(native.status())", copies)
    assert done.returncode == 0 and "loaded from" in done.stdout, done.stdout


def test_another_library_of_that_name(run_forked, copies):
    shutil.copy(str(copies / CORE), str(copies / PLUGIN))
    check_refused(run_forked(REFUSED, copies), "PluginABIError", "not memonger's plugin")


def compiled(source, path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)], check=True,
                   input=source, universal_newlines=True)


def test_a_plugin_that_needs_what_this_mxnet_lacks(run_forked, copies):
    compiled("extern \"C\" void mxnet_has_no_such_symbol();"
             "extern \"C\" int memonger_interface_version() {"
             "  mxnet_has_no_such_symbol(); return 1; }", copies / PLUGIN)
    check_refused(run_forked(REFUSED, copies), "PluginABIError", "mxnet_has_no_such_symbol")


def test_a_plugin_of_another_memonger(run_forked, copies):
    compiled("extern \"C\" int memonger_interface_version() { return 999; }"
             "extern \"C\" int memonger_self_check(char*, unsigned long) { return 0; }"
             "extern \"C\" int memonger_register(char*, unsigned long) { __builtin_trap(); }",
             copies / PLUGIN)
    check_refused(run_forked(REFUSED, copies), "PluginABIError", "interface 999")


def test_a_failing_self_check_stops_before_registration(run_forked, copies):
    compiled("#include <string.h>\n"
             "extern \"C\" int memonger_interface_version() { return %d; }" % native._INTERFACE +
             "extern \"C\" int memonger_self_check(char* text, unsigned long) {"
             "  strcpy(text, \"nnvm::Node layout\"); return 1; }"
             "extern \"C\" int memonger_register(char*, unsigned long) { __builtin_trap(); }",
             copies / PLUGIN)
    check_refused(run_forked(REFUSED, copies), "PluginABIError", "nnvm::Node layout",
                  "pip install mxnet==1.9.1")


def test_another_version_of_mxnet(run_forked):
    done = run_forked("import mxnet; mxnet.__version__ = '1.9.0'\n" + REFUSED)
    check_refused(done, "PluginABIError", "made for MXNet 1.9.1, this is 1.9.0")


def test_a_libmxnet_of_another_compiler(run_forked, tmp_path):
    foreign = tmp_path / "libmxnet.so"
    compiled("int nothing;", foreign)
    done = run_forked("import mxnet.base; mxnet.base._LIB._name = %r\n" % str(foreign) + REFUSED)
    check_refused(done, "PluginABIError", "was compiled by GCC", "GCC: (GNU) 4.8.5",
                  "pip install mxnet==1.9.1")


@pytest.mark.parametrize("content", [b"", b"no ELF file", b"\x7fELF\x02\x01" + b"\xff" * 90],
                         ids=["empty", "text", "nonsense"])
def test_a_libmxnet_that_cannot_be_read(run_forked, tmp_path, content):
    (tmp_path / "libmxnet.so").write_bytes(content)
    done = run_forked("import mxnet.base; mxnet.base._LIB._name = %r\n"
               % str(tmp_path / "libmxnet.so") + REFUSED)
    check_refused(done, "PluginABIError", "cannot read")


def test_a_second_copy_is_refused_and_the_first_goes_on(run_forked, copies):
    done = run_forked("""
import os
from memonger import native
native.load()
import memonger.mx.plugin, importlib.util
os.environ["MEMONGER_NATIVE_DIR"] = %r
spec = importlib.util.spec_from_file_location("memonger.mx.second", memonger.mx.plugin.__file__)
second = importlib.util.module_from_spec(spec)
spec.loader.exec_module(second)
try:
    second.load()
except Exception as error:
    print(type(error).__name__, error)
import mxnet as mx
net = mx.sym.MakeLoss(mx.sym.tanh(mx.sym.var("data"), name="a", attr={"force_mirroring": "True"}))
with native.capture() as records:
    net.simple_bind(mx.cpu(), data=(2, 2))
names = [node["name"] for node in records[0]["nodes"]]
print([name for name in names if "_recompute" in name], "whole")
""" % str(copies))
    check_refused(done, "PluginABIError", "another copy")
    assert "['a_recompute1']" in done.stdout


def test_the_same_library_loads_once(run_forked, tmp_path):
    done = run_forked("""
import importlib
from memonger import native
native.load(); native.load()
again = importlib.reload(native)
again.load()
print(again.status())
""")
    assert done.returncode == 0 and "loaded from" in done.stdout, done.stdout


def test_what_was_missing_is_found_when_it_is_there(run_forked, tmp_path, copies):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run_forked("""
import shutil
from memonger import native
assert not native.available()
for name in (%r, %r):
    shutil.copy("%s/" + name, %r)
assert native.available()
print("whole")
""" % (PLUGIN, CORE, copies, str(empty)), empty)
    assert done.returncode == 0 and "whole" in done.stdout, done.stdout


def test_importing_memonger_loads_nothing():
    done = run("import memonger, memonger.native, sys; "
               "print('mxnet' in sys.modules, open('/proc/self/maps').read().count('memonger_'))")
    assert done.stdout.split() == ["False", "0"], done.stdout


def test_the_core_needs_no_mxnet():
    done = run("from memonger import native; print(native.core()); import sys; "
               "assert 'mxnet' not in sys.modules and "
               "'libmxnet' not in open('/proc/self/maps').read()")
    assert done.returncode == 0, done.stdout


def test_a_damaged_core_is_refused(copies):
    path = copies / CORE
    path.write_bytes(cut(path.read_bytes()))
    done = run("from memonger import native, errors\ntry: native.core()\n"
               "except errors.PluginABIError as error: print('refused', error)", copies)
    assert done.returncode == 0 and "refused" in done.stdout and "damaged" in done.stdout


@pytest.mark.parametrize("source, interface", [
    ("int other() { return 1; }", "interface 0"),  # from before it had a number
    ("extern \"C\" int memonger_core_interface_version() { return 999; }", "interface 999")])
def test_a_core_of_another_memonger(copies, source, interface):
    compiled(source, copies / CORE)
    done = run("from memonger import native, errors\ntry: native.core()\n"
               "except errors.PluginABIError as error: print('refused', error)", copies)
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout
    assert interface in done.stdout and "python plugins/build.py" in done.stdout, done.stdout


def test_memonger_disable_loads_but_stays_off(run_forked):
    done = run_forked("from memonger import native; native.load(); print(native.status())",
                  MEMONGER_DISABLE="1")
    assert "exact recomputation off, storage planning off" in done.stdout


def test_exit_is_clean_while_executors_live():
    done = run("""
from memonger import native
native.load()
import mxnet as mx
net = mx.sym.MakeLoss(mx.sym.tanh(mx.sym.var("data"), name="a", attr={"force_mirroring": "True"}))
keep = [net.simple_bind(mx.cpu(), data=(2, 2)) for _ in range(3)]
keep[0].forward(is_train=True); keep[0].backward()
print("end")
""")
    assert done.returncode == 0 and done.stdout.strip().endswith("end"), done.stdout
