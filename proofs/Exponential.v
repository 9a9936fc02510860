(* e^(-n/D) between two integers in units of 1/F: 1 - y <= e^(-y) <= 1/(1 + y) at y = n/(D 2^K), then
   K squarings, each rounded down (up). No series and no assumption. *)
Require Import Reals Lra Lia ZArith.
Open Scope R_scope.

Definition ceiling (a b : Z) : Z := (- (- a / b))%Z.

Lemma floor_le a b : (0 < b)%Z -> IZR (a / b) <= IZR a / IZR b.
Proof.
  intro B. assert (0 < IZR b) by (apply (IZR_lt 0); lia).
  apply Rmult_le_reg_r with (IZR b); [lra|]. unfold Rdiv at 1. rewrite <- mult_IZR.
  replace (IZR a * / IZR b * IZR b) with (IZR a) by (field; lra).
  apply IZR_le. rewrite Z.mul_comm. apply Z.mul_div_le. lia.
Qed.

Lemma ceiling_ge a b : (0 < b)%Z -> IZR a / IZR b <= IZR (ceiling a b).
Proof.
  intro B. unfold ceiling. rewrite opp_IZR. assert (H := floor_le (- a) b B).
  rewrite opp_IZR in H. unfold Rdiv in *. lra.
Qed.

Section Exponential.
Variables F D : Z.
Variable K : nat.
Hypothesis F_pos : (0 < F)%Z.
Hypothesis D_pos : (0 < D)%Z.

Fixpoint squared_down (k : nat) (v : Z) : Z :=
  match k with O => v | S j => squared_down j (v * v / F) end.
Fixpoint squared_up (k : nat) (v : Z) : Z :=
  match k with O => v | S j => squared_up j (ceiling (v * v) F) end.

Definition pieces : Z := (D * 2 ^ Z.of_nat K)%Z.
Definition exp_lower (n : Z) : Z := squared_down K (Z.max 0 (F - ceiling (n * F) pieces)).
Definition exp_upper (n : Z) : Z := squared_up K (ceiling (F * pieces) (pieces + n)).

Lemma F_real : 0 < IZR F.
Proof. apply (IZR_lt 0). assumption. Qed.

Lemma pieces_pos : (0 < pieces)%Z.
Proof. unfold pieces. assert (0 < 2 ^ Z.of_nat K)%Z by (apply Z.pow_pos_nonneg; lia). nia. Qed.

Lemma exp_doubled y : exp y * exp y = exp (2 * y).
Proof. rewrite <- exp_plus. f_equal. ring. Qed.

Lemma squared_down_sound k : forall v y, (0 <= v)%Z -> IZR v <= IZR F * exp y ->
  (0 <= squared_down k v)%Z /\ IZR (squared_down k v) <= IZR F * exp (2 ^ k * y).
Proof.
  induction k as [|k IH]; intros v y V H; simpl.
  - rewrite Rmult_1_l. auto.
  - replace (2 * 2 ^ k * y) with (2 ^ k * (2 * y)) by ring. apply IH.
    + apply Z.div_pos; nia.
    + eapply Rle_trans; [apply floor_le; assumption|]. rewrite mult_IZR.
      assert (0 <= IZR v) by (apply (IZR_le 0); assumption).
      assert (P := F_real). apply Rmult_le_reg_r with (IZR F); [assumption|].
      replace (IZR v * IZR v / IZR F * IZR F) with (IZR v * IZR v) by (field; lra).
      rewrite <- exp_doubled.
      replace (IZR F * (exp y * exp y) * IZR F) with ((IZR F * exp y) * (IZR F * exp y)) by ring.
      apply Rmult_le_compat; assumption.
Qed.

Lemma squared_up_sound k : forall v y, IZR F * exp y <= IZR v ->
  IZR F * exp (2 ^ k * y) <= IZR (squared_up k v).
Proof.
  induction k as [|k IH]; intros v y H; simpl.
  - rewrite Rmult_1_l. exact H.
  - replace (2 * 2 ^ k * y) with (2 ^ k * (2 * y)) by ring. apply IH.
    eapply Rle_trans; [|apply ceiling_ge; assumption]. rewrite mult_IZR.
    assert (P := F_real). assert (E := exp_pos y).
    apply Rmult_le_reg_r with (IZR F); [assumption|].
    replace (IZR v * IZR v / IZR F * IZR F) with (IZR v * IZR v) by (field; lra).
    rewrite <- exp_doubled.
    replace (IZR F * (exp y * exp y) * IZR F) with ((IZR F * exp y) * (IZR F * exp y)) by ring.
    assert (0 <= IZR F * exp y) by (apply Rmult_le_pos; lra).
    apply Rmult_le_compat; assumption.
Qed.

Lemma unscaled n : 2 ^ K * (- (IZR n / IZR pieces)) = - (IZR n / IZR D).
Proof.
  unfold pieces. rewrite mult_IZR, <- pow_IZR. assert (0 < 2 ^ K) by (apply pow_lt; lra).
  assert (0 < IZR D) by (apply (IZR_lt 0); assumption). field. lra.
Qed.

Theorem exp_lower_sound n : (0 <= n)%Z ->
  (0 <= exp_lower n)%Z /\ IZR (exp_lower n) <= IZR F * exp (- (IZR n / IZR D)).
Proof.
  intro N. rewrite <- unscaled. apply squared_down_sound; [lia|].
  assert (P := F_real). assert (E := exp_pos (- (IZR n / IZR pieces))).
  apply Z.max_case_strong; intros _; [apply Rmult_le_pos; lra|].
  rewrite minus_IZR. assert (C := ceiling_ge (n * F) pieces pieces_pos). rewrite mult_IZR in C.
  assert (T := exp_ineq1_le (- (IZR n / IZR pieces))).
  apply Rle_trans with (IZR F * (1 + - (IZR n / IZR pieces))); [|apply Rmult_le_compat_l; lra].
  unfold Rdiv in *. lra.
Qed.

Theorem exp_upper_sound n : (0 <= n)%Z -> IZR F * exp (- (IZR n / IZR D)) <= IZR (exp_upper n).
Proof.
  intro N. rewrite <- unscaled. apply squared_up_sound.
  assert (Q := pieces_pos). assert (R := F_real).
  assert (0 < IZR pieces) by (apply (IZR_lt 0); assumption).
  assert (0 <= IZR n) by (apply (IZR_le 0); assumption).
  eapply Rle_trans; [|apply ceiling_ge; lia]. rewrite mult_IZR, plus_IZR.
  rewrite exp_Ropp. unfold Rdiv at 2. rewrite Rmult_assoc. apply Rmult_le_compat_l; [lra|].
  assert (T := exp_ineq1_le (IZR n / IZR pieces)).
  assert (0 <= IZR n / IZR pieces).
  { apply Rmult_le_pos; [assumption|]. left. apply Rinv_0_lt_compat. assumption. }
  replace (IZR pieces * / (IZR pieces + IZR n)) with (/ (1 + IZR n / IZR pieces)) by (field; lra).
  apply Rinv_le_contravar; lra.
Qed.
End Exponential.
