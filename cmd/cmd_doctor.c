/* lockstep doctor: what this machine offers, what is missing, and how to get it. */
#include "doctor.h"

#include "cmd.h"

#include <lockstep/base/version.h>

#include <stdarg.h>

void doctor_row(const char *name, const char *format, ...)
{
    char value[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(value, sizeof value, format, args);
    va_end(args);
    cmd_print("  %-22s %s\n", name, value);
}

void doctor_problem(struct doctor *doctor, const char *what, const char *remedy)
{
    doctor->problems++;
    cmd_print("  ! %s\n      to fix: %s\n", what, remedy);
}

void doctor_advice(struct doctor *doctor, const char *what, const char *remedy)
{
    doctor->advice++;
    cmd_print("  ~ %s\n      to improve: %s\n", what, remedy);
}

int cmd_doctor(const struct cmd_args *args, struct ls_error *error)
{
    (void)args, (void)error;
    struct doctor doctor = {0};
    cmd_progress_begin(); /* of the products that it measures */
    printf("lockstep %s (commit %s, numerics.version %d)\n", ls_version(), ls_commit(),
           LS_NUMERICS_VERSION);
    doctor_processor(&doctor);
    doctor_memory(&doctor);
    doctor_libraries(&doctor);
    doctor_speed(&doctor);
    doctor_mpi(&doctor);
    if (doctor.problems) {
        printf("\nTraining cannot run here: %d problem%s (marked !).\n", doctor.problems,
               doctor.problems > 1 ? "s" : "");
        return ls_exit_code(LS_ENOTSUP);
    }
    printf("\nTraining can run here%s\n",
           doctor.advice ? "; what is marked ~ would make it better." : ".");
    return 0;
}
