#!/usr/bin/env bash
# The compiler alone: a shared library, threads, C++, debugging symbols, an archive.
# needs: gcc g++ ar
set -eu
cat > t.c <<'C'
#include <pthread.h>
#include <stdio.h>
static void *work(void *x) { *(int *)x += 1; return NULL; }
int main(void) { int n = 41; pthread_t t; pthread_create(&t, NULL, work, &n); pthread_join(t, NULL); printf("%d\n", n); }
C
gcc -g -Wall -pthread -pipe t.c -o t; test "$(./t)" = 42
echo 'int f(void) { return 5; }' > f.c; gcc -shared -fPIC -o libf.so f.c
echo 'int f(void); int main(void) { return f() - 5; }' > m.c; gcc m.c -L. -lf -o m; LD_LIBRARY_PATH=. ./m
gcc -c f.c; ar rcs libg.a f.o; nm libg.a | grep -q ' T f'
cat > v.cpp <<'C'
#include <iostream>
#include <vector>
int main() { std::vector<int> v{1, 2, 3}; std::cout << v.size() << "\n"; }
C
g++ -std=c++17 -O2 v.cpp -o v; test "$(./v)" = 3
echo JOB OK
