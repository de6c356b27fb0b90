"""The plugin is loaded only into the MXNet it was built for, and a refusal changes nothing."""
from __future__ import annotations

import shutil
import subprocess

import pytest
from forked import python
from needed import BUILD_ADVICE

from memonger.mx.plugin import loading as native

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
def run(forked):
    """``run(code, folder)``: a fork that has imported MXNet; libraries come from ``folder``."""
    def run(code, folder=None, **environment):
        if folder is not None:
            environment["MEMONGER_NATIVE_DIR"] = str(folder)
        done = forked.run(code, **environment)
        done.stdout += done.stderr
        return done
    return run


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


def test_nothing_built(run, tmp_path):
    check_refused(run(REFUSED, tmp_path), "PluginMissing", BUILD_ADVICE)


DAMAGES = {"cut": lambda data: data[:len(data) // 2], "cut a little": lambda data: data[:-5000],
           "altered": lambda data: data[:50000] + bytes(255 - byte for byte in data[50000:50064])
           + data[50064:],
           "no library": lambda data: b"\x7fELF" + b"\0" * 100, "empty": lambda data: b""}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plugin(run, copies, damage):
    path = copies / PLUGIN
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    check_refused(run(REFUSED, copies), "PluginABIError", PLUGIN, "damaged", "reinstall")


def test_a_stripped_plugin_loads(run, copies):
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip")
    subprocess.run([strip, str(copies / PLUGIN)], check=True)
    done = run("from memonger import native; native.load(); print(native.status())", copies)
    assert done.returncode == 0 and "loaded from" in done.stdout, done.stdout


def test_another_library_of_that_name(run, copies):
    shutil.copy(str(copies / CORE), str(copies / PLUGIN))
    check_refused(run(REFUSED, copies), "PluginABIError", "not memonger's plugin")


def compiled(source, path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c++", "-", "-o", str(path)], check=True,
                   input=source, universal_newlines=True)


#: What C functions of another plugin do, and what is said of it; none of them registers anything.
OTHER_PLUGINS = {
    "void mxnet_has_no_such_symbol(); int memonger_interface_version() "
    "{ mxnet_has_no_such_symbol(); return 1; }": ["mxnet_has_no_such_symbol"],
    "int memonger_interface_version() { return 999; }"
    "int memonger_self_check(char*, unsigned long) { return 0; }"
    "int memonger_register(char*, unsigned long) { __builtin_trap(); }": ["interface 999"],
    "int memonger_interface_version() { return %d; }"
    "int memonger_self_check(char* text, unsigned long) "
    "{ __builtin_strcpy(text, \"nnvm::Node layout\"); return 1; }"
    "int memonger_register(char*, unsigned long) { __builtin_trap(); }" % native._INTERFACE:
        ["nnvm::Node layout", "pip install mxnet==1.9.1"]}


@pytest.mark.parametrize("source", OTHER_PLUGINS, ids=["symbols", "interface", "self-check"])
def test_another_plugin(run, copies, source):
    compiled('extern "C" { %s }' % source, copies / PLUGIN)
    check_refused(run(REFUSED, copies), "PluginABIError", *OTHER_PLUGINS[source])


def test_another_version_of_mxnet(run):
    done = run("import mxnet; mxnet.__version__ = '1.9.0'\n" + REFUSED)
    check_refused(done, "PluginABIError", "made for MXNet 1.9.1, this is 1.9.0")


def test_a_libmxnet_of_another_compiler(run, tmp_path):
    foreign = tmp_path / "libmxnet.so"
    compiled("int nothing;", foreign)
    done = run("import mxnet.base; mxnet.base._LIB._name = %r\n" % str(foreign) + REFUSED)
    check_refused(done, "PluginABIError", "was compiled by GCC", "GCC: (GNU) 4.8.5",
                  "pip install mxnet==1.9.1")


@pytest.mark.parametrize("content", [b"", b"no ELF file", b"\x7fELF\x02\x01" + b"\xff" * 90],
                         ids=["empty", "text", "nonsense"])
def test_a_libmxnet_that_cannot_be_read(run, tmp_path, content):
    (tmp_path / "libmxnet.so").write_bytes(content)
    done = run("import mxnet.base; mxnet.base._LIB._name = %r\n"
               % str(tmp_path / "libmxnet.so") + REFUSED)
    check_refused(done, "PluginABIError", "cannot read")


def test_a_second_copy_is_refused_and_the_first_goes_on(run, copies):
    done = run("""
import os
from memonger import native
native.load()
import memonger.mx.plugin.loading, importlib.util
os.environ["MEMONGER_NATIVE_DIR"] = %r
spec = importlib.util.spec_from_file_location("memonger.mx.plugin.second",
                                              memonger.mx.plugin.loading.__file__)
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


def test_the_same_library_loads_once(run):
    done = run("import importlib\nfrom memonger import native\nnative.load(); native.load()\n"
               "again = importlib.reload(native)\nagain.load()\nprint(again.status())")
    assert done.returncode == 0 and "loaded from" in done.stdout, done.stdout


def test_what_was_missing_is_found_when_it_is_there(run, tmp_path, copies):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run("""
import shutil
from memonger import native
assert not native.available()
for name in (%r, %r):
    shutil.copy("%s/" + name, %r)
assert native.available()
print("whole")
""" % (PLUGIN, CORE, copies, str(empty)), empty)
    assert done.returncode == 0 and "whole" in done.stdout, done.stdout


def test_importing_memonger_loads_nothing_and_its_core_needs_no_mxnet():
    done = python("-c", """
import memonger, memonger.native, sys
maps = lambda: open('/proc/self/maps').read()
print('mxnet' in sys.modules, maps().count('memonger_'))
memonger.native.core()
print('mxnet' in sys.modules, 'libmxnet' in maps(), maps().count('memonger_core') > 0)""")
    assert done.stdout.split() == ["False", "0", "False", "False", "True"], done.stdout


@pytest.mark.parametrize("source, words", [
    (None, ["damaged"]),
    ("int other() { return 1; }", ["interface 0", "python plugins/build.py"]),  # had no number yet
    ("extern \"C\" int memonger_core_interface_version() { return 999; }",
     ["interface 999", "python plugins/build.py"])], ids=["damaged", "old", "new"])
def test_a_core_that_does_not_fit(copies, source, words):
    path = copies / CORE
    if source is None:
        path.write_bytes(DAMAGES["cut"](path.read_bytes()))
    else:
        compiled(source, path)
    done = python("-c", "from memonger import native, errors\ntry: native.core()\n"
                  "except errors.PluginABIError as error: print('refused', error)",
                  MEMONGER_NATIVE_DIR=str(copies))
    for word in ["refused", *words]:
        assert word in done.stdout, done.stdout


def test_memonger_disable_loads_but_stays_off(run):
    done = run("from memonger import native; native.load(); print(native.status())",
                  MEMONGER_DISABLE="1")
    assert "exact recomputation off, storage planning off" in done.stdout


def test_exit_is_clean_while_executors_live():
    done = python("-c", """
from memonger import native
native.load()
import mxnet as mx
net = mx.sym.MakeLoss(mx.sym.tanh(mx.sym.var("data"), name="a", attr={"force_mirroring": "True"}))
keep = [net.simple_bind(mx.cpu(), data=(2, 2)) for _ in range(3)]
keep[0].forward(is_train=True); keep[0].backward()
print("end")
""")
    assert done.returncode == 0 and done.stdout.strip().endswith("end"), done.stdout
