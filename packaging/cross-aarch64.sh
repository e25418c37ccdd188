#!/bin/sh
# Run a command with setup.py's environment for cross-compiling to aarch64 against the Python headers of an arm64 system.
#
#   packaging/cross-aarch64.sh ROOT PYTHON_VERSION COMMAND...
set -eu
root=$1
version=$2
shift 2
export BITNET_EDGE_TARGET=aarch64
export CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared"
# -I comes before the headers of the Python that runs setup.py; -idirafter finds pyconfig.h's part for aarch64
export CPPFLAGS="-I$root/usr/include/python$version -idirafter $root/usr/include"
SETUPTOOLS_EXT_SUFFIX=.cpython-$(echo "$version" | tr -d .)-aarch64-linux-gnu.so
export SETUPTOOLS_EXT_SUFFIX
exec "$@"
