# Where processes find the library that stands for NCCL and CUDA (mock_processes.c): link_mock FOLDER makes a folder for
# LD_LIBRARY_PATH; has_mock says whether this build has it.  $1 is the command's path.
mock=$(dirname "$(dirname "$1")")/tests/mock-nccl/libweir_mock_processes.so
has_mock() { [[ -e $mock ]]; }
link_mock() {
  local major
  mkdir "$1"
  ln -s "$mock" "$1/libnccl.so.2"
  for major in 11 12 13; do ln -s "$mock" "$1/libcudart.so.$major"; done
}
