# Finds NVTX's header, which is all there is of it: among the system's, in /usr/local/cuda, or where
# scripts/setup-cuda.sh put CUDA's.  WEIR_NVTX says whether ranges for profilers are built in
# (base/trace.h).
option(WEIR_NVTX "mark ranges for profilers where nvtx3 is found" ON)
set(WEIR_NVTX_STATE "off")
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h
          HINTS /usr/local/cuda/include ${wheels}/nvidia/cu13/include)
mark_as_advanced(NVTX_INCLUDE_DIR)
if(WEIR_NVTX)
  if(NVTX_INCLUDE_DIR)
    set(WEIR_NVTX_STATE "ranges built")
    target_compile_definitions(weir_flags INTERFACE WEIR_NVTX)
  else()
    set(WEIR_NVTX OFF)
    set(WEIR_NVTX_STATE "absent")
  endif()
endif()
