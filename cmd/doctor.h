/* What the parts of `lockstep doctor` share: rows of its report, and what they found. */
#ifndef CMD_DOCTOR_H
#define CMD_DOCTOR_H

#include <lockstep/base.h>

/* What was found missing. problems keep training from running; advice only costs speed or a
 * feature. */
struct doctor {
    int problems, advice;
};

/* "  name              value" */
void doctor_row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A row that begins with an exclamation mark, and counts. remedy is a command or an advice. */
void doctor_problem(struct doctor *doctor, const char *what, const char *remedy);
void doctor_advice(struct doctor *doctor, const char *what, const char *remedy);

/* The sections, each with its heading. */
void doctor_processor(struct doctor *doctor);
void doctor_memory(struct doctor *doctor);
/* Runs matrix products: what training stands on must work, and this is how fast it goes. */
void doctor_speed(struct doctor *doctor);
void doctor_libraries(struct doctor *doctor);
void doctor_mpi(struct doctor *doctor);

#endif
