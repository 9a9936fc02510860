r"""Composition: proven bounds on the total privacy loss of any list of rounds (PLDs).

delta_of_total_loss  delta and epsilon of a list of rounds, by a contour integral; start here
few_large_losses     the same if only a few of many rounds have a large loss
enumerate_outcomes   the same for few outcomes, by enumeration
contour_sum          the contour integral as a finite sum, with bounds on every error
saddle_point         the choice of the contour and the grid
factor               one factor of the integrand for each law
discrete_factor      the factor of a finite law, by a nonuniform Fourier transform
gaussian_factor      the factor of a discrete Gaussian, in closed form
cell_refinement      the privacy loss of one round, discretised as finely as needed
complex_intervals    complex interval arithmetic on arrays
"""
