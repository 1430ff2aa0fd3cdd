"""The operator A(x) = Den(Noi(T(x)); x): shape, schedule, solvers, guidance, seeds."""
