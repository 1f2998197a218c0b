#!/usr/bin/env bash
# A C program of three files built by make, changed and built again.
# needs: make gcc cc
set -eu
cat > util.h <<'C'
int twice(int);
C
cat > util.c <<'C'
#include "util.h"
int twice(int x) { return 2 * x; }
C
cat > main.c <<'C'
#include <stdio.h>
#include "util.h"
int main(void) { printf("%d\n", twice(21)); return 0; }
C
printf 'CFLAGS = -Wall -O1\nprog: main.o util.o\n\t$(CC) -o $@ $^\n%%.o: %%.c util.h\n\t$(CC) $(CFLAGS) -c $<\ntest: prog\n\ttest "$$(./prog)" = 42\nclean:\n\trm -f prog *.o\n.PHONY: test clean\n' > Makefile
make -j2 test
touch util.h; make 2>&1 | grep -c -- '-c' | grep -qx 2
make clean; test ! -e prog
echo JOB OK
