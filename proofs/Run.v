(* A verdict computed inside Coq, so that a claim is a theorem: of 64 rounds of discrete Laplace noise
   of scale 20 and sensitivity 1, as tests/vectors/certificates/evidence_laplaces.json states. *)
Require Import Reals List ZArith.
From dpcore Require Import Pairs Exponential Kernel DiscreteLaplace.
Import ListNotations.
Open Scope Z_scope.

(* The window: places at either end with masses that add up to at most `cut` a round. *)
Fixpoint leading (cut : Z) (w : list Z) : nat :=
  match w with [] => O | a :: t => if a <=? cut then S (leading (cut - a) t) else O end.
Definition window (cut : Z) (L : listing) : nat * nat :=
  let most := cut * rounds_of L in
  let low := leading most (weights L) in
  (low, length (weights L) - low - leading most (rev (weights L)))%nat.

(* Losses in units of 10^-7/20, masses in units of 10^-28, exponentials in units of 2^-280. *)
Definition D := 20 * 10 ^ 7.
Definition u := 10 ^ 7.
Definition U := 10 ^ 28.
Definition F := 2 ^ 280.
Definition K := 120%nat.
Definition weights_of_round :=
  let upper := exp_upper F D K u in
  [U * exp_lower F D K u / (F + upper); U * F / (F + upper)].
Definition claim (epsilon : Z) : bool :=
  verdict D u U F K 1 (window 93318527) weights_of_round 64 (20 * epsilon) 1 (10 ^ 6).

(* epsilon = 1.7124025 holds; the kernel cannot show 1.7124024, which is false. *)
Theorem proven xs : NoDup xs ->
  (delta (exp (IZR (20 * 17124025) / IZR D)) (power (Pos.to_nat 64) (outcomes D u 1 xs))
   <= 1 / IZR (10 ^ 6))%R.
Proof.
  intro N. apply (verdict_sound D u U F K 1 (window 93318527) weights_of_round); [|exact N].
  vm_cast_no_check (eq_refl true).
Qed.

Example refused : claim 17124024 = false.
Proof. vm_cast_no_check (eq_refl false). Qed.

Print Assumptions proven.
