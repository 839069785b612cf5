# CUDA, NCCL, NVTX, MPI and weir-netprobe are never needed.  What is there is said in one line.
get_property(helper GLOBAL PROPERTY WEIR_HELPER_STATE)
get_property(mpi GLOBAL PROPERTY WEIR_MPI_FOUND)
if(mpi)
  set(mpi "found")
else()
  set(mpi "absent")
endif()
message(STATUS "Optional: CUDA ${WEIR_CUDA_STATE}, NCCL ${WEIR_NCCL_STATE}, NVTX ${WEIR_NVTX_STATE}, MPI ${mpi}, weir-netprobe ${helper}")
