(* Discrete Laplace noise on the integers, from the law to the verdict, without a hypothesis: masses
   proportional to e^(-|x| u/D), moved by d. The laws are restricted to finite sets of outcomes, which
   is no loss: P(S) - x Q(S) of any S is a limit of those of finite sets. *)
Require Import Reals Lra Lia List ZArith.
From dpcore Require Import Pairs Exponential Kernel.
Import ListNotations.
Open Scope R_scope.

Section Table.
Variables D step U : Z.
Hypothesis D_pos : (0 < D)%Z.
Hypothesis step_pos : (0 < step)%Z.
Hypothesis U_pos : (0 < U)%Z.
Context {A : Type}.
Variable mass : A -> R.
Hypothesis mass_nonneg : forall c, 0 <= mass c.

(* Classes of outcomes whose losses are n/D, (n + step)/D, ...: their delta. *)
Fixpoint spread (x : R) (n : Z) (cells : list A) : R :=
  match cells with
  | [] => 0
  | c :: t => mass c * pos (1 - x * exp (- loss D n)) + spread x (n + step) t
  end.

Theorem table_dominates x n cells w k : 0 <= x -> sum mass cells = 1 -> proper U (Listing n w k) ->
  Forall2 (fun c a => IZR a <= IZR U * mass c) cells w ->
  spread x n cells <= delta x (denoted D step U (Listing n w k)).
Proof.
  intros X One P H. rewrite delta_denoted by assumption. simpl.
  assert (G : forall cells w, Forall2 (fun c a => IZR a <= IZR U * mass c) cells w ->
    forall n, spread x n cells <= sum mass cells - share D step x n w / IZR U).
  { clear One P H n cells w. intros cells w H. assert (PU := U_real U U_pos).
    induction H as [|c a cells w M H IH]; intro n; simpl; [unfold Rdiv; lra|].
    specialize (IH (n + step)%Z).
    replace (pos (1 - x * exp (- loss D n))) with (1 - cap D x n) by (unfold cap; cases; lra).
    assert (C := cap_nonneg D x n X). assert (K : IZR a / IZR U <= mass c).
    { apply Rmult_le_reg_r with (IZR U); [assumption|].
      replace (IZR a / IZR U * IZR U) with (IZR a) by (field; lra). lra. }
    assert (IZR a / IZR U * cap D x n <= mass c * cap D x n) by (apply Rmult_le_compat_r; assumption).
    unfold Rdiv in *. lra. }
  rewrite <- One. apply G. assumption.
Qed.
End Table.

Lemma sum_included {A} (f : A -> R) (xs ys : list A) :
  (forall c, 0 <= f c) -> NoDup xs -> incl xs ys -> sum f xs <= sum f ys.
Proof.
  intros P N. revert ys. induction N as [|a t A' N IH]; intros ys I; simpl.
  - rewrite <- (sum_zero ys). apply sum_mono. auto.
  - destruct (in_split a ys (I a (or_introl eq_refl))) as (l & r & ->).
    rewrite sum_app. simpl. assert (H : sum f t <= sum f (l ++ r)).
    { apply IH. intros c C. assert (B := I c (or_intror C)). apply in_app_iff in B.
      simpl in B. apply in_app_iff. destruct B as [B|[<-|B]]; auto. contradiction. }
    rewrite sum_app in H. lra.
Qed.

Section Law.
Variables D u U F : Z.
Variable K d : nat.
Hypothesis D_pos : (0 < D)%Z.
Hypothesis u_pos : (0 < u)%Z.
Hypothesis U_pos : (0 < U)%Z.
Hypothesis F_pos : (0 < F)%Z.
Hypothesis d_pos : (0 < d)%nat.

Definition b : R := exp (- loss D u).
Definition law (x : Z) : R := (1 - b) / (1 + b) * b ^ Z.abs_nat x.
Definition outcomes (xs : list Z) : pair := map (fun x => (law x, law (x - Z.of_nat d))) xs.

Lemma b_between : 0 < b < 1.
Proof.
  split; [apply exp_pos|]. unfold b. rewrite <- exp_0. apply exp_increasing.
  assert (0 < loss D u).
  { unfold loss. apply Rmult_lt_0_compat; [apply (IZR_lt 0); assumption|].
    apply Rinv_0_lt_compat, D_real. assumption. }
  lra.
Qed.

Lemma b_power n : b ^ n = exp (- loss D (Z.of_nat n * u)).
Proof.
  induction n as [|n IH]; cbn [pow].
  - unfold loss, Rdiv. rewrite Rmult_0_l, Ropp_0, exp_0. reflexivity.
  - rewrite IH. unfold b. rewrite <- exp_plus. f_equal.
    replace (Z.of_nat (S n) * u)%Z with (u + Z.of_nat n * u)%Z by lia.
    rewrite loss_plus. ring.
Qed.

Lemma law_nonneg x : 0 <= law x.
Proof.
  assert (B := b_between). unfold law. apply Rmult_le_pos; [|apply pow_le; lra].
  apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. lra.
Qed.

(* Classes of equal loss: everything from d up, the outcomes d-1, ..., 1, everything from 0 down. *)
Definition class_mass (k : nat) : R :=
  if Nat.eqb k 0 then 1 / (1 + b) else if Nat.eqb k d then b ^ d / (1 + b) else (1 - b) / (1 + b) * b ^ k.
Fixpoint countdown (k : nat) : list nat := match k with O => [O] | S j => k :: countdown j end.

Lemma class_nonneg k : 0 <= class_mass k.
Proof.
  assert (B := b_between). unfold class_mass.
  assert (0 < / (1 + b)) by (apply Rinv_0_lt_compat; lra).
  destruct Nat.eqb; [|destruct Nat.eqb]; unfold Rdiv; repeat apply Rmult_le_pos; try apply pow_le; lra.
Qed.

Lemma class_total : sum class_mass (countdown d) = 1.
Proof.
  assert (B := b_between).
  assert (G : forall k, (k < d)%nat -> sum class_mass (countdown k) = (1 + b - b ^ S k) / (1 + b)).
  { induction k as [|k IH]; intro H; cbn [countdown sum].
    - unfold class_mass. simpl. field. lra.
    - rewrite IH by lia. unfold class_mass. destruct (Nat.eqb_spec (S k) 0); [lia|].
      destruct (Nat.eqb_spec (S k) d); [lia|]. simpl. field. lra. }
  destruct d as [|e] eqn:E; [lia|]. cbn [countdown sum]. rewrite G by lia.
  unfold class_mass. rewrite E. simpl Nat.eqb. rewrite Nat.eqb_refl. field. lra.
Qed.

Definition paid (y : R) (k : nat) : R := pos (1 - y * exp (- loss D ((Z.of_nat d - 2 * Z.of_nat k) * u))).

Lemma paid_nonneg y k : 0 <= paid y k.
Proof. unfold paid. cases; lra. Qed.

Lemma outcome_gain y x k : Z.of_nat k = Z.max 0 (Z.min x (Z.of_nat d)) ->
  gain y (law x, law (x - Z.of_nat d)) = law x * paid y k.
Proof.
  intro H. unfold paid. rewrite <- pos_scale by apply law_nonneg. unfold gain. cbn [fst snd]. f_equal.
  assert (E : law (x - Z.of_nat d) = law x * exp (- loss D ((Z.of_nat d - 2 * Z.of_nat k) * u))).
  { unfold law. rewrite !b_power, Rmult_assoc, <- exp_plus. f_equal. f_equal.
    replace (- loss D (Z.of_nat (Z.abs_nat x) * u) + - loss D ((Z.of_nat d - 2 * Z.of_nat k) * u))
      with (- (loss D (Z.of_nat (Z.abs_nat x) * u) + loss D ((Z.of_nat d - 2 * Z.of_nat k) * u))) by ring.
    rewrite <- loss_plus. do 2 f_equal. nia. }
  rewrite E. ring.
Qed.

Lemma tail y k e (f : nat -> Z) :
  (forall n, Z.abs_nat (f n) = (n + e)%nat) ->
  (forall n, Z.of_nat k = Z.max 0 (Z.min (f n) (Z.of_nat d))) ->
  forall N, sum (fun x => gain y (law x, law (x - Z.of_nat d))) (map f (seq 0 N))
            <= b ^ e / (1 + b) * paid y k.
Proof.
  intros E C N. assert (B := b_between).
  assert (G : sum (fun x => gain y (law x, law (x - Z.of_nat d))) (map f (seq 0 N))
              = b ^ e * (1 - b ^ N) / (1 + b) * paid y k).
  { induction N as [|N IH]; [simpl; field; lra|]. rewrite seq_S, map_app, sum_app, IH.
    cbn [map sum plus]. rewrite (outcome_gain y (f N) k) by apply C.
    unfold law. rewrite E, pow_add. simpl. field. lra. }
  rewrite G. apply Rmult_le_compat_r; [apply paid_nonneg|].
  assert (0 <= b ^ N) by (apply pow_le; lra). assert (0 <= b ^ e) by (apply pow_le; lra).
  unfold Rdiv. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; lra|].
  rewrite <- (Rmult_1_r (b ^ e)) at 2. apply Rmult_le_compat_l; lra.
Qed.

Lemma middle y : forall k, (k < d)%nat ->
  sum (fun x => gain y (law x, law (x - Z.of_nat d))) (map Z.of_nat (seq 1 k)) + class_mass 0 * paid y 0
  = sum (fun j => class_mass j * paid y j) (countdown k).
Proof.
  induction k as [|k IH]; intro H; [simpl; ring|]. cbn [countdown sum].
  rewrite seq_S, map_app, sum_app, <- IH by lia. cbn [map sum].
  rewrite (outcome_gain y (Z.of_nat (1 + k)) (S k)) by lia.
  unfold class_mass at 2. destruct (Nat.eqb_spec (S k) 0); [lia|].
  destruct (Nat.eqb_spec (S k) d); [lia|]. unfold law. rewrite Zabs2Nat.id. simpl (1 + k)%nat. ring.
Qed.

Lemma spread_countdown y k : forall n, n = ((Z.of_nat d - 2 * Z.of_nat k) * u)%Z ->
  sum (fun j => class_mass j * paid y j) (countdown k) = spread D (2 * u) class_mass y n (countdown k).
Proof.
  induction k as [|k IH]; intros n ->; cbn [countdown sum spread].
  - unfold paid. ring.
  - rewrite (IH ((Z.of_nat d - 2 * Z.of_nat (S k)) * u + 2 * u)%Z) by lia. reflexivity.
Qed.

Theorem outcomes_spread y xs : NoDup xs ->
  delta y (outcomes xs) <= spread D (2 * u) class_mass y (- Z.of_nat d * u) (countdown d).
Proof.
  intro N. unfold delta, outcomes. rewrite sum_map.
  set (M := S (list_max (map Z.abs_nat xs) + d)).
  set (ys := map (fun n => - Z.of_nat n)%Z (seq 0 M) ++ map Z.of_nat (seq 1 (d - 1))
             ++ map (fun n => Z.of_nat d + Z.of_nat n)%Z (seq 0 M)).
  eapply Rle_trans; [apply (sum_included _ xs ys)|].
  - intros x. unfold gain. cases; lra.
  - assumption.
  - intros x I. assert (J : (Z.abs_nat x < M)%nat).
    { unfold M. assert (T := proj1 (list_max_le (map Z.abs_nat xs) _) (Nat.le_refl _)).
      rewrite Forall_map, Forall_forall in T. specialize (T x I). simpl in T. lia. }
    unfold ys. rewrite !in_app_iff, !in_map_iff.
    destruct (Z_le_gt_dec x 0); [left; exists (Z.abs_nat x); rewrite in_seq; lia|].
    right. destruct (Z_lt_ge_dec x (Z.of_nat d)).
    + left. exists (Z.abs_nat x). rewrite in_seq. lia.
    + right. exists (Z.abs_nat x - d)%nat. rewrite in_seq. lia.
  - unfold ys. rewrite !sum_app.
    assert (L := tail y 0 0 (fun n => - Z.of_nat n)%Z ltac:(intro; cbv beta; lia) ltac:(intro; cbv beta; lia) M).
    assert (H := tail y d d (fun n => Z.of_nat d + Z.of_nat n)%Z ltac:(intro; cbv beta; lia) ltac:(intro; cbv beta; lia) M).
    rewrite <- (spread_countdown y d) by lia.
    assert (E : sum (fun j => class_mass j * paid y j) (countdown d)
                = b ^ d / (1 + b) * paid y d + sum (fun j => class_mass j * paid y j) (countdown (d - 1))).
    { unfold class_mass at 1. clear L H. destruct d as [|e] eqn:X; [lia|]. cbn [countdown sum].
      unfold class_mass at 1. rewrite X. simpl Nat.eqb. rewrite Nat.eqb_refl.
      replace (S e - 1)%nat with e by lia. reflexivity. }
    rewrite E, <- (middle y (d - 1)) by lia.
    assert (Z0 : class_mass 0 = b ^ 0 / (1 + b)) by reflexivity. rewrite Z0. lra.
Qed.

(* Weights of the classes, checked in integers. *)
Definition class_checks (k : nat) (a : Z) : bool :=
  let upper := exp_upper F D K u in
  let power := exp_lower F D K (Z.of_nat k * u) in
  (0 <=? a)%Z && (if Nat.eqb k 0 then a * (F + upper) <=? U * F
   else if Nat.eqb k d then a * (F + upper) <=? U * power
   else a * (F + upper) * F <=? U * (F - upper) * power)%Z.

Fixpoint checks (cells : list nat) (w : list Z) : bool :=
  match cells, w with
  | [], [] => true
  | k :: s, a :: t => class_checks k a && checks s t
  | _, _ => false
  end.

Lemma class_checked k a : class_checks k a = true -> (0 <= a)%Z /\ IZR a <= IZR U * class_mass k.
Proof.
  unfold class_checks, class_mass. rewrite Bool.andb_true_iff, Z.leb_le. intros [N H].
  split; [assumption|]. assert (B := b_between). assert (PF := F_real F F_pos). assert (PU := U_real U U_pos).
  assert (Up := exp_upper_sound F D K F_pos D_pos u ltac:(lia)). fold (loss D u) b in Up.
  destruct (exp_lower_sound F D K F_pos D_pos (Z.of_nat k * u) ltac:(nia)) as [Lo Lp].
  fold (loss D (Z.of_nat k * u)) in Lp. rewrite <- b_power in Lp.
  set (v := exp_upper F D K u) in *. set (q := exp_lower F D K (Z.of_nat k * u)) in *.
  apply (IZR_le 0) in N. apply (IZR_le 0) in Lo.
  assert (S : IZR a * (IZR F * (1 + b)) <= IZR a * (IZR F + IZR v)) by (apply Rmult_le_compat_l; lra).
  assert (Fb : 0 < IZR F * (1 + b)) by (apply Rmult_lt_0_compat; lra).
  destruct (Nat.eqb k 0); [|destruct (Nat.eqb_spec k d)]; apply Z.leb_le, IZR_le in H;
    rewrite ?mult_IZR, ?minus_IZR, ?plus_IZR in H; apply Rmult_le_reg_r with (IZR F * (1 + b)); try assumption.
  - replace (IZR U * (1 / (1 + b)) * (IZR F * (1 + b))) with (IZR U * IZR F) by (field; lra). lra.
  - subst k. replace (IZR U * (b ^ d / (1 + b)) * (IZR F * (1 + b))) with (IZR U * (IZR F * b ^ d)) by (field; lra).
    assert (IZR U * IZR q <= IZR U * (IZR F * b ^ d)) by (apply Rmult_le_compat_l; lra). lra.
  - replace (IZR U * ((1 - b) / (1 + b) * b ^ k) * (IZR F * (1 + b)))
      with (IZR U * (1 - b) * (IZR F * b ^ k)) by (field; lra).
    apply Rmult_le_reg_r with (IZR F); [assumption|].
    assert (A1 : IZR U * (IZR F - IZR v) * IZR q <= IZR U * (IZR F * (1 - b)) * (IZR F * b ^ k)).
    { rewrite !Rmult_assoc. apply Rmult_le_compat_l; [lra|].
      apply Rle_trans with (IZR F * (1 - b) * IZR q).
      - apply Rmult_le_compat_r; lra.
      - rewrite Rmult_assoc. apply Rmult_le_compat_l; [lra|]. apply Rmult_le_compat_l; lra. }
    assert (A2 : IZR a * (IZR F * (1 + b)) * IZR F <= IZR a * (IZR F + IZR v) * IZR F)
      by (apply Rmult_le_compat_r; lra).
    lra.
Qed.

Theorem laplace_below w xs :
  checks (countdown d) w = true -> (total w <= U)%Z -> NoDup xs ->
  nonneg (outcomes xs) /\ dominated (outcomes xs) (denoted D (2 * u) U (Listing (- Z.of_nat d * u) w 1)).
Proof.
  intros C T N. split.
  { unfold nonneg, outcomes. rewrite Forall_map, Forall_forall. intros x _. simpl.
    split; apply law_nonneg. }
  assert (G : forall cells w, checks cells w = true ->
    natural w /\ Forall2 (fun c a => IZR a <= IZR U * class_mass c) cells w).
  { induction cells as [|k s IH]; intros [|a t] H; try discriminate; [split; constructor|].
    simpl in H. apply Bool.andb_true_iff in H as [H J]. apply class_checked in H as [H I].
    destruct (IH t J). split; constructor; assumption. }
  destruct (G _ _ C) as [Nw Fw]. intros y Y. eapply Rle_trans; [apply outcomes_spread; assumption|].
  apply table_dominates; try lia; try assumption.
  - apply class_total.
  - split; assumption.
Qed.
End Law.

(* k rounds of discrete Laplace noise of scale D/u, moved by d: any set of outcomes of all rounds that
   lies in a product of finite sets gains at most the claim. *)
Definition verdict (D u U F : Z) (K d : nat) window (w : list Z) (rounds : positive)
  (epsilon numerator denominator : Z) : bool :=
  ((0 <? D) && (0 <? u) && (0 <? U) && (0 <? F) && (Nat.ltb 0 d) && checks D u U F K d (countdown d) w
   && accepts D (2 * u) U F K window [(Listing (- Z.of_nat d * u) w 1, rounds)] epsilon numerator denominator)%Z%bool.

Theorem verdict_sound D u U F K d window w rounds epsilon numerator denominator :
  verdict D u U F K d window w rounds epsilon numerator denominator = true ->
  forall xs, NoDup xs ->
  delta (exp (IZR epsilon / IZR D)) (power (Pos.to_nat rounds) (outcomes D u d xs))
  <= IZR numerator / IZR denominator.
Proof.
  unfold verdict. rewrite !Bool.andb_true_iff, !Z.ltb_lt, Nat.ltb_lt.
  intros [[[[[[P1 P2] P3] P4] P5] C] A] xs N.
  assert (V : valid U (Listing (- Z.of_nat d * u) w 1) = true).
  { unfold accepts in A. rewrite !Bool.andb_true_iff in A. destruct A as [[V _] _].
    simpl in V. rewrite Bool.andb_true_r in V. exact V. }
  apply valid_proper in V as [_ T]. simpl in T.
  destruct (laplace_below D u U F K d P1 P2 P3 P4 P5 w xs C T N) as [Nn Dm].
  refine (accepts_sound D (2 * u) U F K window P1 ltac:(lia) P3 P4
    [(outcomes D u d xs, rounds)] _ epsilon numerator denominator _ A).
  constructor; [|constructor]. split; [reflexivity|]. split; assumption.
Qed.

Print Assumptions verdict_sound.
