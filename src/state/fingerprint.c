/* Which machine and build gave the bits of a state: "numerics.version 2; arithmetic fma; isa
 * avx2; compiler 12.2.0; lockstep 0.1.0 0123456789ab". Bits depend on the first two fields alone,
 * and the second one is a key of the recipe. */
#include <lockstep/base/version.h>
#include <lockstep/state.h>

#include <stdio.h>
#include <string.h>

void ls_fingerprint(const struct ls_ops *ops, char *text, size_t bytes)
{
    snprintf(text, bytes, "numerics.version %d; arithmetic %s; isa %s; compiler %s; lockstep %s %s",
             LS_NUMERICS_VERSION, ls_arithmetic_name(ops->arithmetic), ls_isa_name(ops->isa),
             __VERSION__, ls_version(), ls_commit());
}

/* The field's value; *length 0 if there is none. */
static const char *field_of(const char *text, const char *name, int *length)
{
    size_t named = strlen(name);
    for (; text; text = strstr(text, "; ") ? strstr(text, "; ") + 2 : NULL)
        if (strncmp(text, name, named) == 0 && text[named] == ' ') {
            *length = (int)strcspn(text + named + 1, ";");
            return text + named + 1;
        }
    *length = 0;
    return "";
}

bool ls_fingerprint_differs(const char *a, const char *b, char *text, size_t bytes)
{
    static const char name[] = "numerics.version";
    int long_a, long_b;
    const char *in_a = field_of(a, name, &long_a), *in_b = field_of(b, name, &long_b);
    bool differs = long_a != long_b || strncmp(in_a, in_b, (size_t)long_a) != 0;
    text[0] = '\0';
    if (differs)
        snprintf(text, bytes, "%s %.*s there, %.*s here", name, long_a ? long_a : 7,
                 long_a ? in_a : "unknown", long_b ? long_b : 7, long_b ? in_b : "unknown");
    return differs;
}
