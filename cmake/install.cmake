# `cmake --install`: headers, both libraries, the command line with its manual page, scenarios and documents,
# weir.pc and a CMake package
# (find_package(Weir) -> Weir::weir, the shared library).
include(CMakePackageConfigHelpers)

install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS weir_static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS weir_shared EXPORT WeirTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS weir_nccl_tuner LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET weir_cli)
  install(TARGETS weir_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  get_property(benches GLOBAL PROPERTY WEIR_BENCHES)
  install(TARGETS ${benches} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/weir)
  # What its help refers to.
  install(DIRECTORY scenarios DESTINATION ${CMAKE_INSTALL_DATADIR}/weir)
  install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  # The manual page is what the command says of itself.
  if(NOT CMAKE_CROSSCOMPILING)
    add_custom_command(
      OUTPUT ${CMAKE_BINARY_DIR}/weir.1
      COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/man.sh $<TARGET_FILE:weir_cli>
              > ${CMAKE_BINARY_DIR}/weir.1
      DEPENDS weir_cli ${CMAKE_SOURCE_DIR}/cmake/man.sh VERBATIM)
    add_custom_target(weir_man ALL DEPENDS ${CMAKE_BINARY_DIR}/weir.1)
    install(FILES ${CMAKE_BINARY_DIR}/weir.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 OPTIONAL)
  endif()
endif()

# What the archive needs beside itself, as linker arguments.
set(WEIR_PRIVATE_LIBRARIES "-pthread -lm")
list(REMOVE_ITEM libraries OpenSSL::SSL OpenSSL::Crypto) # weir.pc names it as a package
foreach(library ${libraries})
  if(TARGET ${library})
    get_target_property(arguments ${library} INTERFACE_LINK_LIBRARIES)
  else()
    set(arguments -l${library})
  endif()
  foreach(argument ${arguments})
    string(APPEND WEIR_PRIVATE_LIBRARIES " ${argument}")
  endforeach()
endforeach()
# Either folder may be given as an absolute path.
foreach(folder LIB INCLUDE)
  set(WEIR_${folder} ${CMAKE_INSTALL_${folder}DIR})
  cmake_path(ABSOLUTE_PATH WEIR_${folder} BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  file(RELATIVE_PATH WEIR_${folder} ${CMAKE_INSTALL_PREFIX} ${WEIR_${folder}})
endforeach()
file(RELATIVE_PATH WEIR_PREFIX /prefix/${WEIR_LIB}/pkgconfig /prefix)
configure_file(cmake/weir.pc.in weir.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Weir)
install(EXPORT WeirTargets NAMESPACE Weir:: DESTINATION ${package} FILE WeirConfig.cmake)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/WeirConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/WeirConfigVersion.cmake DESTINATION ${package})

# What the Python package takes along (python/pyproject.toml).
if(SKBUILD)
  add_custom_target(weir_python DEPENDS weir_shared)
  install(FILES $<TARGET_FILE:weir_shared> DESTINATION lib RENAME libweir.so COMPONENT python)
  if(TARGET weir_netprobe)
    add_dependencies(weir_python weir_netprobe)
    install(TARGETS weir_netprobe RUNTIME DESTINATION libexec/weir COMPONENT python)
  endif()
  if(TARGET weir_cuda)
    add_dependencies(weir_python weir_cuda)
    install(FILES $<TARGET_FILE:weir_cuda> DESTINATION lib
            RENAME libweir_cuda.so.${PROJECT_VERSION_MAJOR} COMPONENT python)
  endif()
endif()
