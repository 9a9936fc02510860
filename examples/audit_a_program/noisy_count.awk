#!/usr/bin/awk -f
# A noisy count in awk that dpcore can audit. From the folder above examples/:
#
#   dpcore audit 'exec:awk -f examples/audit_a_program/noisy_count.awk' \
#       --claim epsilon=1 --pair 0 1 -n 20000                                    (not refuted)
#   dpcore audit 'exec:awk -f examples/audit_a_program/noisy_count.awk scale=0.5' \
#       --claim epsilon=1 --pair 0 1 -n 20000                                    (refuted)
#
# Standard input has one request, {"dataset": 0, "n": 5, "seed": 7}; the output has n lines, one per
# run. rand() is good enough for a demonstration, but not for privacy.

BEGIN { scale = 1 }

{ request = request $0 }

END {
    srand(field("seed") % 2147483647)
    value = field("dataset")
    n = field("n")
    for (i = 0; i < n; i++) print value + geometric() - geometric()
}

# P(geometric >= g) = e^(-g/scale); the difference of two is discrete Laplace of that scale.
function geometric() { return int(-scale * log(1 - rand())) }

function field(name) {
    if (!match(request, "\"" name "\" *: *-?[0-9]+")) {
        print "the request has no integer " name > "/dev/stderr"
        exit 1
    }
    found = substr(request, RSTART, RLENGTH)
    sub(/^.*: */, "", found)
    return found + 0
}
