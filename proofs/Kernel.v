(* The kernel's computation on integers: from listings of losses above each round to an upper bound of
   delta. A listing gives masses in units of 1/U to the losses start/D, (start + step)/D, ...; the rest
   is at infinity. `accepts_sound` is the statement; nothing here depends on what the laws are. *)
Require Import Reals Lra Lia List ZArith.
From dpcore Require Import Pairs Exponential.
Import ListNotations.
Open Scope R_scope.

Record listing := Listing { start : Z; weights : list Z; rounds_of : Z }.

Section Kernel.
Variables D step U F : Z.       (* losses are n/D; masses are w/U; e^(-loss) is v/F *)
Variable K : nat.               (* squarings in an exponential *)
Variable window : listing -> nat * nat.  (* how many low places move up; how many places are kept *)

(* 1. The function. `rounds_of` only lets a window depend on how many rounds a listing is of. *)
Fixpoint total (w : list Z) : Z := match w with [] => 0 | a :: t => a + total t end%Z.

Fixpoint added (a b : list Z) : list Z :=
  match a, b with
  | [], _ => b
  | _, [] => a
  | x :: s, y :: t => (x + y)%Z :: added s t
  end.

Fixpoint convolved (a b : list Z) : list Z :=
  match b with [] => [] | y :: t => added (map (Z.mul y) a) (0%Z :: convolved a t) end.

Definition rounded (w : list Z) : list Z := map (fun v => v / U)%Z w.

Fixpoint raised (k : nat) (carried : Z) (w : list Z) {struct w} : list Z :=
  match w with
  | [] => []
  | a :: t => match k with O => (carried + a)%Z :: t | S j => raised j (carried + a)%Z t end
  end.

Definition trimmed (L : listing) : listing :=
  let (low, kept) := window L in
  Listing (start L + Z.of_nat low * step) (firstn kept (raised low 0 (weights L))) (rounds_of L).

Definition times (A B : listing) : listing :=
  trimmed (Listing (start A + start B) (rounded (convolved (weights A) (weights B)))
                   (rounds_of A + rounds_of B)).

Fixpoint copies (p : positive) (L : listing) : listing :=
  match p with
  | xH => L
  | xO r => let M := copies r L in times M M
  | xI r => let M := copies r L in times (times M M) L
  end.

Fixpoint composed (rounds : list (listing * positive)) : listing :=
  match rounds with
  | [] => Listing 0 [U] 0
  | [(L, k)] => copies k L
  | (L, k) :: rest => times (copies k L) (composed rest)
  end.

Fixpoint horner (e : Z) (w : list Z) : Z :=
  match w with [] => 0 | a :: t => a * F + horner e t * e / F end%Z.

Fixpoint covering (epsilon e n : Z) (w : list Z) : Z :=
  match w with
  | [] => 0
  | a :: t => if (n <=? epsilon)%Z then a * F + covering epsilon e (n + step) t
              else exp_lower F D K (n - epsilon) * horner e w / F
  end%Z.

Definition valid (L : listing) : bool :=
  (forallb (Z.leb 0) (weights L) && (total (weights L) <=? U))%Z%bool.

(* delta(epsilon/D) <= numerator/denominator? *)
Definition accepts (rounds : list (listing * positive)) (epsilon numerator denominator : Z) : bool :=
  let L := composed rounds in
  let e := exp_lower F D K step in
  let covered := covering epsilon e (start L) (weights L) in
  (forallb (fun r => valid (fst r)) rounds && (0 <? denominator)
   && (denominator * (U * F - covered) <=? numerator * (U * F)))%Z%bool.

(* 2. What a listing says: a pair of laws, with the mass that is not listed at an infinite loss. *)
Hypothesis D_pos : (0 < D)%Z.
Hypothesis step_pos : (0 < step)%Z.
Hypothesis U_pos : (0 < U)%Z.
Hypothesis F_pos : (0 < F)%Z.

Definition loss (n : Z) : R := IZR n / IZR D.
Definition unit_mass (a : Z) : R := IZR a / IZR U.

Fixpoint rows (n : Z) (w : list Z) : pair :=
  match w with
  | [] => []
  | a :: t => (unit_mass a, unit_mass a * exp (- loss n)) :: rows (n + step) t
  end.

Definition denoted (L : listing) : pair :=
  (unit_mass (U - total (weights L)), 0) :: rows (start L) (weights L).

Definition natural (w : list Z) := Forall (Z.le 0) w.
Definition proper (L : listing) := natural (weights L) /\ (total (weights L) <= U)%Z.
Definition listed (l : pair) (L : listing) := nonneg l /\ proper L /\ dominated l (denoted L).

(* 3. delta of a listing is 1 less its share, which every step can only lower. *)
Definition cap (x : R) (n : Z) : R := Rmin 1 (x * exp (- loss n)).
Fixpoint share (x : R) (n : Z) (w : list Z) : R :=
  match w with [] => 0 | a :: t => IZR a * cap x n + share x (n + step) t end.
Definition covered (x : R) (l : pair) := sum (fun c => Rmin (fst c) (x * snd c)) l.

Lemma delta_covered x l : delta x l = sum fst l - covered x l.
Proof.
  unfold delta, covered. induction l as [|[p q] t IH]; simpl; [ring|].
  rewrite IH. unfold gain; simpl. cases; lra.
Qed.

Lemma U_real : 0 < IZR U.
Proof. apply (IZR_lt 0). assumption. Qed.

Lemma D_real : 0 < IZR D.
Proof. apply (IZR_lt 0). assumption. Qed.

Lemma loss_plus n m : loss (n + m) = loss n + loss m.
Proof. unfold loss, Rdiv. rewrite plus_IZR. ring. Qed.

Lemma loss_mono n m : (n <= m)%Z -> loss n <= loss m.
Proof.
  intro H. unfold loss, Rdiv. apply Rmult_le_compat_r; [|apply IZR_le; assumption].
  left. apply Rinv_0_lt_compat, D_real.
Qed.

Lemma cap_nonneg x n : 0 <= x -> 0 <= cap x n.
Proof.
  intro H. assert (0 <= x * exp (- loss n)).
  { apply Rmult_le_pos; [assumption|]. left. apply exp_pos. }
  unfold cap. cases; lra.
Qed.

Lemma cap_falls x n m : 0 <= x -> (n <= m)%Z -> cap x m <= cap x n.
Proof.
  intros H N. apply loss_mono in N. assert (exp (- loss m) <= exp (- loss n)).
  { destruct (Req_dec (loss n) (loss m)) as [->|]; [lra|]. left. apply exp_increasing. lra. }
  assert (x * exp (- loss m) <= x * exp (- loss n)) by (apply Rmult_le_compat_l; assumption).
  unfold cap. cases; lra.
Qed.

Lemma natural_real a w : natural (a :: w) -> 0 <= IZR a /\ natural w.
Proof. intro H. inversion H; subst. split; [apply (IZR_le 0)|]; assumption. Qed.

Lemma share_nonneg x w : 0 <= x -> natural w -> forall n, 0 <= share x n w.
Proof.
  intros H N. induction w as [|a w IH]; intro n; simpl; [lra|].
  apply natural_real in N as [A N]. assert (C := cap_nonneg x n H).
  assert (0 <= IZR a * cap x n) by (apply Rmult_le_pos; assumption). specialize (IH N (n + step)%Z). lra.
Qed.

Lemma share_added x a : forall b n, share x n (added a b) = share x n a + share x n b.
Proof.
  induction a as [|p s IH]; intros [|q t] n; simpl; try lra.
  rewrite IH, plus_IZR. ring.
Qed.

Lemma share_scaled x k w : forall n, share x n (map (Z.mul k) w) = IZR k * share x n w.
Proof.
  induction w as [|a w IH]; intro n; simpl; [ring|]. rewrite IH, mult_IZR. ring.
Qed.

Lemma mass_scaled a k : unit_mass a * unit_mass k = IZR a * IZR k / (IZR U * IZR U).
Proof. unfold unit_mass. field. assert (P := U_real). lra. Qed.

Lemma mass_nonneg a : (0 <= a)%Z -> 0 <= unit_mass a.
Proof.
  intro H. unfold unit_mass. apply Rmult_le_pos; [apply (IZR_le 0); assumption|].
  left. apply Rinv_0_lt_compat, U_real.
Qed.

Lemma sum_rows n w : sum fst (rows n w) = unit_mass (total w).
Proof.
  revert n. induction w as [|a w IH]; intro n; simpl; [unfold unit_mass, Rdiv; ring|].
  rewrite IH. unfold unit_mass, Rdiv. rewrite plus_IZR. ring.
Qed.

Lemma sum_denoted L : sum fst (denoted L) = 1.
Proof.
  simpl. rewrite sum_rows. unfold unit_mass. rewrite minus_IZR. field.
  assert (P := U_real). lra.
Qed.

Lemma nonneg_denoted L : proper L -> nonneg (denoted L).
Proof.
  intros [N T]. constructor; simpl; [split; [apply mass_nonneg; lia|lra]|].
  generalize (start L). induction N as [|a w A N IH]; intro n; constructor; auto.
  - assert (M := mass_nonneg a A). assert (E := exp_pos (- loss n)). simpl. split; [assumption|].
    apply Rmult_le_pos; lra.
  - apply IH. simpl in T. lia.
Qed.

(* The shared part of a listing and one row (b at loss m) of another. *)
Lemma covered_row x m b : 0 <= x -> (0 <= b)%Z -> forall w n, natural w ->
  sum (fun c => Rmin (fst c * unit_mass b) (x * (snd c * (unit_mass b * exp (- loss m))))) (rows n w)
  = IZR b * share x (n + m) w / (IZR U * IZR U).
Proof.
  intros X B. induction w as [|a w IH]; intros n N; simpl; [unfold Rdiv; ring|].
  inversion N; subst. rewrite IH by assumption.
  replace (n + step + m)%Z with (n + m + step)%Z by ring.
  replace (x * (unit_mass a * exp (- loss n) * (unit_mass b * exp (- loss m))))
    with (unit_mass a * unit_mass b * (x * exp (- loss (n + m)))).
  2:{ rewrite loss_plus. replace (- (loss n + loss m)) with (- loss n + - loss m) by ring.
      rewrite exp_plus. ring. }
  assert (P : 0 <= unit_mass a * unit_mass b) by (apply Rmult_le_pos; apply mass_nonneg; assumption).
  replace (Rmin (unit_mass a * unit_mass b) (unit_mass a * unit_mass b * (x * exp (- loss (n + m)))))
    with (unit_mass a * unit_mass b * cap x (n + m)).
  2:{ unfold cap. set (u := unit_mass a * unit_mass b) in *. set (y := x * exp (- loss (n + m))).
      destruct (Rle_dec 1 y).
      - rewrite !Rmin_left; [ring| |assumption].
        rewrite <- (Rmult_1_r u) at 1. apply Rmult_le_compat_l; assumption.
      - rewrite !Rmin_right; [ring| |lra].
        rewrite <- (Rmult_1_r u) at 2. apply Rmult_le_compat_l; lra. }
  rewrite mass_scaled. unfold Rdiv. ring.
Qed.

Lemma covered_nothing x c l : nonneg l -> 0 <= c ->
  sum (fun d => Rmin (fst d * c) (x * (snd d * 0))) l = 0.
Proof.
  intros N C. unfold nonneg in N.
  induction N as [|[p q] t [P Q] _ IH]; simpl; [reflexivity|]. rewrite IH. simpl in *.
  assert (0 <= p * c) by (apply Rmult_le_pos; assumption).
  rewrite !Rmult_0_r. rewrite Rmin_right by assumption. ring.
Qed.

Lemma covered_product x A B : 0 <= x -> proper A -> proper B ->
  covered x (prod (denoted A) (denoted B))
  = share x (start A + start B) (convolved (weights A) (weights B)) / (IZR U * IZR U).
Proof.
  intros X PA PB. unfold covered. rewrite sum_prod.
  assert (NA := nonneg_denoted A PA). destruct PA as [NW TA], PB as [NB TB].
  unfold denoted at 2. cbn [sum mul fst snd]. rewrite covered_nothing; [|assumption|apply mass_nonneg; lia].
  rewrite Rplus_0_l. clear TB. generalize (start B).
  induction (weights B) as [|b w IH]; intro m; cbn [rows sum convolved share].
  - unfold Rdiv. ring.
  - inversion NB; subst. rewrite IH by assumption. rewrite share_added, share_scaled.
    cbn [share]. rewrite Rmult_0_l, Rplus_0_l. unfold denoted. cbn [sum].
    assert (M : 0 <= unit_mass (U - total (weights A))) by (apply mass_nonneg; lia).
    assert (M' := mass_nonneg b ltac:(assumption)).
    cbn [fst snd mul].
    replace (Rmin (unit_mass (U - total (weights A)) * unit_mass b)
                  (x * (0 * (unit_mass b * exp (- loss m))))) with 0.
    2:{ rewrite Rmult_0_l, Rmult_0_r, Rmin_right; [reflexivity|apply Rmult_le_pos; assumption]. }
    rewrite (covered_row x m b X ltac:(assumption) (weights A) (start A) NW).
    replace (start A + (m + step))%Z with (start A + m + step)%Z by ring.
    unfold Rdiv. ring.
Qed.

Lemma delta_denoted x L : 0 <= x -> proper L ->
  delta x (denoted L) = 1 - share x (start L) (weights L) / IZR U.
Proof.
  intros X P. rewrite delta_covered, sum_denoted. f_equal. unfold covered, denoted. cbn [sum fst snd].
  destruct P as [N T]. assert (M := mass_nonneg (U - total (weights L)) ltac:(lia)).
  rewrite Rmult_0_r, Rmin_right, Rplus_0_l by assumption.
  assert (E := covered_row x 0 U X ltac:(lia) (weights L) (start L) N). rewrite Z.add_0_r in E.
  assert (P := U_real). replace (unit_mass U) with 1 in E by (unfold unit_mass; field; lra).
  assert (G : exp (- loss 0) = 1).
  { unfold loss, Rdiv. rewrite Rmult_0_l, Ropp_0. apply exp_0. }
  rewrite G in E.
  transitivity (IZR U * share x (start L) (weights L) / (IZR U * IZR U)); [|field; lra].
  rewrite <- E. apply sum_ext. intros [p q]. simpl. rewrite !Rmult_1_r. reflexivity.
Qed.

(* 4. Each step lowers the share, and keeps masses natural and their total at most U. *)
Lemma total_added a : forall b, total (added a b) = (total a + total b)%Z.
Proof. induction a as [|p s IH]; intros [|q t]; simpl; try lia. rewrite IH. lia. Qed.

Lemma total_scaled k w : total (map (Z.mul k) w) = (k * total w)%Z.
Proof. induction w as [|a w IH]; simpl; lia. Qed.

Lemma total_convolved a b : total (convolved a b) = (total a * total b)%Z.
Proof.
  induction b as [|y t IH]; simpl; [lia|]. rewrite total_added, total_scaled. simpl. lia.
Qed.

Lemma natural_total w : natural w -> (0 <= total w)%Z.
Proof. intro N. induction N; simpl; lia. Qed.

Lemma natural_added a : forall b, natural a -> natural b -> natural (added a b).
Proof.
  induction a as [|p s IH]; intros [|q t] N M; simpl; try assumption.
  inversion N; inversion M; subst. constructor; [lia|]. apply IH; assumption.
Qed.

Lemma natural_convolved a b : natural a -> natural b -> natural (convolved a b).
Proof.
  intros N M. induction M as [|y t Y M IH]; simpl; [constructor|]. apply natural_added.
  - unfold natural. rewrite Forall_map. eapply Forall_impl; [|exact N]. simpl. intros. nia.
  - constructor; [lia|assumption].
Qed.

Lemma natural_rounded w : natural w -> natural (rounded w).
Proof.
  unfold natural, rounded. rewrite Forall_map. intro N. eapply Forall_impl; [|exact N].
  simpl. intros. apply Z.div_pos; assumption.
Qed.

Lemma total_rounded w : (U * total (rounded w) <= total w)%Z.
Proof.
  induction w as [|a w IH]; simpl; [lia|]. assert (H := Z.mul_div_le a U U_pos). lia.
Qed.

Lemma share_rounded x w : 0 <= x -> forall n, share x n (rounded w) <= share x n w / IZR U.
Proof.
  intro X. induction w as [|a w IH]; intro n; simpl; [unfold Rdiv; lra|].
  assert (H := floor_le a U U_pos). assert (C := cap_nonneg x n X). specialize (IH (n + step)%Z).
  assert (IZR (a / U) * cap x n <= IZR a / IZR U * cap x n) by (apply Rmult_le_compat_r; assumption).
  unfold Rdiv in *. lra.
Qed.

Lemma raised_sound x w : 0 <= x -> natural w -> forall k carried n, (0 <= carried)%Z ->
  natural (raised k carried w) /\ (total (raised k carried w) <= carried + total w)%Z /\
  share x (n + Z.of_nat k * step) (raised k carried w) <= IZR carried * cap x n + share x n w.
Proof.
  intros X N. induction N as [|a w A N IH]; intros k carried n C.
  - simpl. assert (0 <= IZR carried) by (apply (IZR_le 0); assumption).
    assert (H' := cap_nonneg x n X).
    repeat split; [constructor|lia|]. assert (0 <= IZR carried * cap x n) by (apply Rmult_le_pos; assumption).
    lra.
  - destruct k as [|k]; simpl raised.
    + rewrite Z.add_0_r. repeat split.
      * constructor; [lia|assumption].
      * simpl. lia.
      * simpl. rewrite plus_IZR. lra.
    + destruct (IH k (carried + a)%Z (n + step)%Z ltac:(lia)) as (P & Q & S).
      repeat split; [assumption|simpl; lia|].
      replace (n + Z.of_nat (Datatypes.S k) * step)%Z with (n + step + Z.of_nat k * step)%Z by lia.
      simpl. eapply Rle_trans; [exact S|]. rewrite plus_IZR.
      assert (F' := cap_falls x n (n + step) X ltac:(lia)).
      assert (0 <= IZR carried) by (apply (IZR_le 0); assumption).
      assert (0 <= IZR a) by (apply (IZR_le 0); assumption).
      assert (IZR carried * cap x (n + step) <= IZR carried * cap x n) by (apply Rmult_le_compat_l; assumption).
      assert (IZR a * cap x (n + step) <= IZR a * cap x n) by (apply Rmult_le_compat_l; assumption).
      lra.
Qed.

Lemma kept_sound x w : 0 <= x -> natural w -> forall k n,
  natural (firstn k w) /\ (total (firstn k w) <= total w)%Z /\
  share x n (firstn k w) <= share x n w.
Proof.
  intros X N. induction N as [|a w A N IH]; intros [|k] n; simpl.
  - repeat split; [constructor|lia|lra].
  - repeat split; [constructor|lia|lra].
  - assert (T := natural_total w N). assert (S := share_nonneg x w X N (n + step)).
    assert (0 <= IZR a) by (apply (IZR_le 0); assumption). assert (C := cap_nonneg x n X).
    assert (0 <= IZR a * cap x n) by (apply Rmult_le_pos; assumption).
    repeat split; [constructor|lia|lra].
  - destruct (IH k (n + step)%Z) as (P & Q & S).
    repeat split; [constructor; assumption|lia|lra].
Qed.

Lemma trimmed_sound L : proper L -> proper (trimmed L) /\
  (forall x, 0 <= x ->
   share x (start (trimmed L)) (weights (trimmed L)) <= share x (start L) (weights L)).
Proof.
  intros [N T]. unfold trimmed. destruct (window L) as [low kept]. split.
  - destruct (raised_sound 1 (weights L) ltac:(lra) N low 0%Z 0%Z ltac:(lia)) as (P & Q & _).
    destruct (kept_sound 1 _ ltac:(lra) P kept 0%Z) as (P' & Q' & _). split; simpl; [assumption|lia].
  - intros x X.
    destruct (raised_sound x (weights L) X N low 0%Z (start L) ltac:(lia)) as (P & _ & S). simpl.
    destruct (kept_sound x _ X P kept (start L + Z.of_nat low * step)%Z) as (_ & _ & S').
    lra.
Qed.

Lemma times_proper A B : proper A -> proper B -> proper (times A B) /\
  dominated (prod (denoted A) (denoted B)) (denoted (times A B)).
Proof.
  intros PA PB. set (W := convolved (weights A) (weights B)).
  assert (NA := PA). assert (NB := PB). destruct NA as [NA TA], NB as [NB TB].
  assert (P : proper (Listing (start A + start B) (rounded W) (rounds_of A + rounds_of B))).
  { split; simpl.
    - apply natural_rounded, natural_convolved; assumption.
    - assert (T := total_rounded W). assert (E := total_convolved (weights A) (weights B)). fold W in E.
      assert (0 <= total (weights A))%Z by (apply natural_total; assumption).
      assert (0 <= total (weights B))%Z by (apply natural_total; assumption). nia. }
  destruct (trimmed_sound _ P) as [Q S]. split; [exact Q|]. intros x X.
  rewrite delta_denoted by assumption. rewrite delta_covered, covered_product by assumption. fold W.
  assert (E : sum fst (prod (denoted A) (denoted B)) = 1).
  { rewrite sum_prod. transitivity (sum (fun d => fst d * sum fst (denoted A)) (denoted B)).
    - apply sum_ext. intro d. rewrite <- sum_scale. apply sum_ext. intro c. simpl. ring.
    - rewrite sum_denoted. transitivity (sum fst (denoted B)); [|apply sum_denoted].
      apply sum_ext. intro d. ring. }
  rewrite E. specialize (S x X). assert (R := share_rounded x W X (start A + start B)%Z).
  assert (G := U_real). simpl in S. unfold times. fold W.
  assert (H : share x (start (trimmed (Listing (start A + start B) (rounded W) (rounds_of A + rounds_of B))))
    (weights (trimmed (Listing (start A + start B) (rounded W) (rounds_of A + rounds_of B)))) / IZR U
    <= share x (start A + start B) W / (IZR U * IZR U)).
  { apply Rle_trans with (share x (start A + start B) W / IZR U / IZR U).
    - apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; assumption|]. lra.
    - apply Req_le. field. lra. }
  lra.
Qed.

(* 5. What is computed lies above what is asked. *)
Lemma times_sound l m A B : listed l A -> listed m B -> listed (prod l m) (times A B).
Proof.
  intros (NL & PA & DL) (NM & PB & DM). destruct (times_proper A B PA PB) as [P E].
  split; [apply nonneg_prod; assumption|]. split; [assumption|]. intros x X.
  eapply Rle_trans; [|apply E; assumption].
  apply composes; auto using nonneg_denoted.
Qed.

Lemma listed_same l m L : same l m -> nonneg m -> listed l L -> listed m L.
Proof.
  intros S N (_ & P & E). split; [assumption|]. split; [assumption|].
  intros x X. rewrite <- (same_delta _ _ S). apply E. assumption.
Qed.

Lemma copies_sound p l L : listed l L -> listed (power (Pos.to_nat p) l) (copies p L).
Proof.
  intro H. assert (N := proj1 H). induction p as [r IH|r IH|].
  - rewrite Pos2Nat.inj_xI. change (copies r~1 L) with (times (times (copies r L) (copies r L)) L).
    cbn [power]. apply times_sound; [|assumption].
    eapply listed_same; [|apply nonneg_power; assumption|apply times_sound; exact IH].
    replace (2 * Pos.to_nat r)%nat with (Pos.to_nat r + Pos.to_nat r)%nat by lia. apply power_add.
  - rewrite Pos2Nat.inj_xO. change (copies r~0 L) with (times (copies r L) (copies r L)).
    eapply listed_same; [|apply nonneg_power; assumption|apply times_sound; exact IH].
    replace (2 * Pos.to_nat r)%nat with (Pos.to_nat r + Pos.to_nat r)%nat by lia. apply power_add.
  - eapply listed_same; [|apply nonneg_power; assumption|exact H].
    intro f. symmetry. apply power_one.
Qed.

(* All rounds: (pair, count) for each, independent of each other. *)
Fixpoint together (rounds : list (pair * positive)) : pair :=
  match rounds with
  | [] => [(1, 1)]
  | [(l, k)] => power (Pos.to_nat k) l
  | (l, k) :: rest => prod (power (Pos.to_nat k) l) (together rest)
  end.

Definition matches (r : pair * positive) (s : listing * positive) :=
  snd r = snd s /\ listed (fst r) (fst s).

Lemma composed_sound pairs rounds :
  Forall2 matches pairs rounds -> listed (together pairs) (composed rounds).
Proof.
  intro H. induction H as [|[l k] [L k'] pairs rounds [E M] H IH]; simpl in *.
  - split; [constructor; [simpl; lra|constructor]|]. split.
    + split; [constructor; [lia|constructor]|simpl; lia].
    + intros x X. rewrite delta_denoted; [|assumption|split; [constructor; [lia|constructor]|simpl; lia]].
      assert (P := U_real). unfold delta, gain; simpl. unfold cap, loss, Rdiv.
      rewrite Rmult_0_l, Ropp_0, exp_0. field_simplify; [|lra]. cases; lra.
  - subst k'. destruct H as [|r s pairs rounds]; [apply copies_sound; assumption|].
    apply times_sound; [apply copies_sound; assumption|exact IH].
Qed.

(* 6. The end: the share is bounded from below in integers. *)
Fixpoint faded (w : list Z) : R :=
  match w with [] => 0 | a :: t => IZR a + exp (- loss step) * faded t end.

Lemma horner_sound e w : natural w -> (0 <= e)%Z -> IZR e <= IZR F * exp (- loss step) ->
  (0 <= horner e w)%Z /\ IZR (horner e w) <= IZR F * faded w.
Proof.
  intros N E H. assert (P := F_real F F_pos). induction N as [|a w A N [I J]]; simpl; [split; [lia|lra]|].
  split.
  - assert (0 <= horner e w * e / F)%Z by (apply Z.div_pos; nia). nia.
  - rewrite plus_IZR, mult_IZR. assert (Q := floor_le (horner e w * e) F F_pos).
    rewrite mult_IZR in Q. assert (0 <= IZR e) by (apply (IZR_le 0); assumption).
    assert (0 <= IZR (horner e w)) by (apply (IZR_le 0); assumption).
    assert (IZR (horner e w) * IZR e <= (IZR F * faded w) * (IZR F * exp (- loss step)))
      by (apply Rmult_le_compat; assumption).
    assert (IZR (horner e w) * IZR e / IZR F <= IZR F * (exp (- loss step) * faded w)).
    { apply Rmult_le_reg_r with (IZR F); [assumption|].
      replace (IZR (horner e w) * IZR e / IZR F * IZR F) with (IZR (horner e w) * IZR e) by (field; lra).
      lra. }
    lra.
Qed.

Lemma share_above epsilon w : forall n, (epsilon <= n)%Z ->
  share (exp (loss epsilon)) n w = exp (- loss (n - epsilon)) * faded w.
Proof.
  induction w as [|a w IH]; intros n H; simpl; [ring|]. rewrite IH by lia.
  replace (n + step - epsilon)%Z with (n - epsilon + step)%Z by ring. rewrite (loss_plus (n - epsilon)).
  rewrite Ropp_plus_distr, exp_plus.
  assert (E : cap (exp (loss epsilon)) n = exp (- loss (n - epsilon))).
  { unfold cap. rewrite <- exp_plus.
    assert (I : loss n = loss (n - epsilon) + loss epsilon) by (rewrite <- loss_plus; f_equal; ring).
    rewrite I.
    replace (loss epsilon + - (loss (n - epsilon) + loss epsilon)) with (- loss (n - epsilon)) by ring.
    apply Rmin_right. rewrite <- exp_0.
    assert (0 <= loss (n - epsilon)).
    { unfold loss. apply Rmult_le_pos; [apply (IZR_le 0); lia|].
      left. apply Rinv_0_lt_compat, D_real. }
    destruct (Req_dec (loss (n - epsilon)) 0) as [->|]; [rewrite Ropp_0; lra|].
    left. apply exp_increasing. lra. }
  rewrite E. ring.
Qed.

Lemma covering_sound epsilon e w : natural w -> (0 <= e)%Z -> IZR e <= IZR F * exp (- loss step) ->
  forall n, IZR (covering epsilon e n w) <= IZR F * share (exp (loss epsilon)) n w.
Proof.
  intros N E H. assert (P := F_real F F_pos). induction N as [|a w A N IH]; intro n; [simpl; lra|].
  cbn [covering]. destruct (Z.leb_spec n epsilon) as [L|L].
  - cbn [share]. rewrite plus_IZR, mult_IZR. specialize (IH (n + step)%Z).
    assert (C : cap (exp (loss epsilon)) n = 1).
    { unfold cap. rewrite <- exp_plus. apply Rmin_left. rewrite <- exp_0.
      assert (G := loss_mono n epsilon L).
      destruct (Req_dec (loss epsilon) (loss n)) as [->|]; [right; f_equal; ring|].
      left. apply exp_increasing. lra. }
    rewrite C. lra.
  - rewrite share_above by lia.
    destruct (horner_sound e (a :: w) ltac:(constructor; assumption) E H) as [J G].
    destruct (exp_lower_sound F D K F_pos D_pos (n - epsilon) ltac:(lia)) as [Q S].
    eapply Rle_trans; [apply floor_le; assumption|]. rewrite mult_IZR.
    set (v := exp_lower F D K (n - epsilon)) in *. set (h := horner e (a :: w)) in *.
    assert (0 <= IZR v) by (apply (IZR_le 0); assumption).
    assert (0 <= IZR h) by (apply (IZR_le 0); assumption).
    apply Rmult_le_reg_r with (IZR F); [assumption|].
    replace (IZR v * IZR h / IZR F * IZR F) with (IZR v * IZR h) by (field; lra).
    fold (loss (n - epsilon)) in S.
    assert (IZR v * IZR h <= (IZR F * exp (- loss (n - epsilon))) * (IZR F * faded (a :: w)))
      by (apply Rmult_le_compat; assumption).
    lra.
Qed.

Lemma valid_proper L : valid L = true -> proper L.
Proof.
  unfold valid. rewrite Bool.andb_true_iff, forallb_forall, Z.leb_le. intros [N T].
  split; [|assumption]. unfold natural. rewrite Forall_forall. intros a I. apply Z.leb_le. auto.
Qed.

(* If it returns true, delta of every list of independent rounds that lie below the listings is at most
   the claim. *)
Theorem accepts_sound pairs rounds epsilon numerator denominator :
  Forall2 (fun r s => snd r = snd s /\ nonneg (fst r) /\ dominated (fst r) (denoted (fst s)))
    pairs rounds ->
  accepts rounds epsilon numerator denominator = true ->
  delta (exp (IZR epsilon / IZR D)) (together pairs) <= IZR numerator / IZR denominator.
Proof.
  intros H A. unfold accepts in A. rewrite !Bool.andb_true_iff, Z.ltb_lt, Z.leb_le in A.
  destruct A as [[V C] B]. rewrite forallb_forall in V.
  assert (M : Forall2 matches pairs rounds).
  { clear B. induction H as [|r s pairs rounds (E & N & G) H IH]; constructor.
    - split; [assumption|]. split; [assumption|]. split; [|assumption].
      apply valid_proper, V. left. reflexivity.
    - apply IH. intros t I. apply V. right. assumption. }
  destruct (composed_sound _ _ M) as (_ & P & Dm). clear M H V.
  fold (loss epsilon). set (x := exp (loss epsilon)). assert (X : 0 <= x) by (left; apply exp_pos).
  eapply Rle_trans; [apply Dm; assumption|]. rewrite delta_denoted by assumption.
  destruct P as [N T]. set (L := composed rounds) in *.
  destruct (exp_lower_sound F D K F_pos D_pos step ltac:(lia)) as [E E'].
  assert (G := covering_sound epsilon _ (weights L) N E E' (start L)). fold x in G.
  set (c := covering epsilon (exp_lower F D K step) (start L) (weights L)) in *.
  apply IZR_le in B. rewrite !mult_IZR, minus_IZR, mult_IZR in B.
  assert (PU := U_real). assert (PF := F_real F F_pos). assert (PD : 0 < IZR denominator) by (apply (IZR_lt 0); assumption).
  assert (PP : 0 < IZR U * IZR F) by (apply Rmult_lt_0_compat; assumption).
  apply Rmult_le_reg_r with (IZR denominator * (IZR U * IZR F)); [apply Rmult_lt_0_compat; assumption|].
  replace (IZR numerator / IZR denominator * (IZR denominator * (IZR U * IZR F)))
    with (IZR numerator * (IZR U * IZR F)) by (field; lra).
  replace ((1 - share x (start L) (weights L) / IZR U) * (IZR denominator * (IZR U * IZR F)))
    with (IZR denominator * (IZR U * IZR F - IZR F * share x (start L) (weights L))) by (field; lra).
  eapply Rle_trans; [|exact B]. apply Rmult_le_compat_l; lra.
Qed.
End Kernel.

Print Assumptions accepts_sound.
