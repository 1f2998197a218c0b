#!/usr/bin/env bash
# cmake: configure, build, test, install into the workspace.
# needs: cmake gcc make
set -eu
cat > CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.10)
project(demo C)
enable_testing()
add_library(twice STATIC twice.c)
add_executable(demo main.c)
target_link_libraries(demo twice)
add_test(NAME runs COMMAND demo)
install(TARGETS demo DESTINATION bin)
C
echo 'int twice(int x) { return 2 * x; }' > twice.c
echo 'int twice(int); int main(void) { return twice(21) == 42 ? 0 : 1; }' > main.c
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release > configure.log
cmake --build build --parallel 2
(cd build; ctest --output-on-failure)
cmake --install build --prefix "$PWD/dist"; dist/bin/demo
echo JOB OK
