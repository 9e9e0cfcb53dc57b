// Compile one body for several vector widths; the loader selects the widest that the processor supports.

#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12 && !defined(VERISPEC_NO_CLONES)
#define VERISPEC_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VERISPEC_CLONES
#endif
