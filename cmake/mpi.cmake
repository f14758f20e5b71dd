# The MPI modules: src/comm/transports/mpi_module.c, built once per MPI that is installed. Debian has
# Open MPI and MPICH side by side; elsewhere `mpicc` may be either, or a vendor's kin of MPICH.
# -DSHOAL_MPICC="/a/bin/mpicc;/b/bin/mpicc" names the compilers of a site's own MPIs instead.
# What is found is in SHOAL_MPI_FLAVOURS; MPI_RUN_openmpi and MPI_RUN_mpich are their launchers.
set(SHOAL_MPICC "" CACHE STRING "MPI compilers to build modules with, instead of those on the path")

set(mpi_source ${CMAKE_SOURCE_DIR}/src/comm/transports/mpi_module.c)
set(SHOAL_MPI_FLAVOURS "")

# Whose mpi.h do these flags lead to? "openmpi", "mpich" or "" (none).
function(mpi_flavour_of flags flavour_out)
  set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/mpi_flavour.c)
  file(WRITE ${probe} "#include <mpi.h>\n#ifdef OPEN_MPI\nflavour=openmpi\n#else\nflavour=mpich\n#endif\n")
  execute_process(COMMAND ${CMAKE_C_COMPILER} ${flags} -E -P ${probe}
                  OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
  set(${flavour_out} "" PARENT_SCOPE)
  if(NOT failed AND text MATCHES "flavour=([a-z]+)")
    set(${flavour_out} ${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

# Every MPI compiler prints what it would run when asked to -show: flags for us.
function(mpi_add_module compiler)
  execute_process(COMMAND ${compiler} -show OUTPUT_VARIABLE line ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    return()
  endif()
  separate_arguments(words UNIX_COMMAND "${line}")
  list(FILTER words INCLUDE REGEX "^-")
  set(includes ${words})
  list(FILTER includes INCLUDE REGEX "^-(I|D)")
  set(links ${words})
  list(FILTER links INCLUDE REGEX "^-(L|l|Wl,)")
  mpi_flavour_of("${includes}" flavour)
  if(flavour STREQUAL "" OR flavour IN_LIST SHOAL_MPI_FLAVOURS)
    return()
  endif()
  string(REGEX REPLACE "(^|;)-I" "\\1-isystem" includes "${includes}")  # its warnings are not ours

  set(module shoal-mpi-${flavour})
  add_library(${module} MODULE ${mpi_source})
  set_target_properties(${module} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  target_compile_options(${module} PRIVATE ${includes})
  target_link_libraries(${module} PRIVATE ${links})
  install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/shoal)
  add_dependencies(product ${module})

  # The launcher lies beside the compiler: mpicc.openmpi has mpirun.openmpi.
  get_filename_component(folder ${compiler} DIRECTORY)
  get_filename_component(name ${compiler} NAME)
  string(REPLACE mpicc mpirun name ${name})
  if(EXISTS ${folder}/${name})
    set(MPI_RUN_${flavour} ${folder}/${name} PARENT_SCOPE)
  endif()
  set(SHOAL_MPI_FLAVOURS ${SHOAL_MPI_FLAVOURS} ${flavour} PARENT_SCOPE)
  message(STATUS "MPI module: ${module}.so, by ${compiler}")
endfunction()

if(SHOAL_MPICC)
  foreach(compiler ${SHOAL_MPICC})
    mpi_add_module(${compiler})
  endforeach()
else()
  foreach(name mpicc.openmpi mpicc.mpich mpicc)
    find_program(SHOAL_FOUND_${name} ${name})
    mark_as_advanced(SHOAL_FOUND_${name})
    if(SHOAL_FOUND_${name})
      mpi_add_module(${SHOAL_FOUND_${name}})
    endif()
  endforeach()
endif()
if(NOT SHOAL_MPI_FLAVOURS)
  message(STATUS "MPI module: none, as there is no mpicc; runs are on one machine")
endif()
