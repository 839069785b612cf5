# Finds NCCL's header and CUDA's: among the system's, in /usr/local/cuda, or where
# scripts/setup-cuda.sh put them.  WEIR_NCCL says whether the NCCL transport is built, which loads the
# libraries when it is used.
option(WEIR_NCCL "build the NCCL transport where nccl.h is found" ON)
set(WEIR_NCCL_STATE "off")
if(DEFINED ENV{WEIR_CUDA_HOME})
  set(wheels $ENV{WEIR_CUDA_HOME})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(wheels $ENV{XDG_CACHE_HOME}/weir/cuda)
else()
  set(wheels $ENV{HOME}/.cache/weir/cuda)
endif()
find_path(NCCL_INCLUDE_DIR nccl.h
          HINTS /usr/local/cuda/include ${wheels}/../nccl/nvidia/nccl/include)
find_path(NCCL_CUDA_INCLUDE_DIR cuda_fp16.h
          HINTS ${NCCL_INCLUDE_DIR} /usr/local/cuda/include ${wheels}/nvidia/cu13/include)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_CUDA_INCLUDE_DIR)
if(WEIR_NCCL)
  if(NCCL_INCLUDE_DIR AND NCCL_CUDA_INCLUDE_DIR)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
    list(JOIN numbers "." version)
    set(WEIR_NCCL_STATE "transport built for ${version}")
  else()
    set(WEIR_NCCL OFF)
    set(WEIR_NCCL_STATE "absent")
  endif()
endif()
