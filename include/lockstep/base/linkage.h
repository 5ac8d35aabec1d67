/* lockstep/base/linkage.h - public headers declare C functions to C++ too: between these two. */
#ifndef LOCKSTEP_BASE_LINKAGE_H
#define LOCKSTEP_BASE_LINKAGE_H

#ifdef __cplusplus
#define LS_C_BEGIN extern "C" {
#define LS_C_END   }
#else
#define LS_C_BEGIN
#define LS_C_END
#endif

#endif
