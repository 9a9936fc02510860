(* Pairs of laws as finite lists, and their divergence delta.
   A pair lists the masses (p, q) of outcomes under P and under Q. delta x l, x = e^epsilon, is the
   largest P(S) - x Q(S) over sets S of outcomes. Coq 8.16, standard library only. *)
Require Import Reals Lra Lia List.
Import ListNotations.
Open Scope R_scope.

Fixpoint sum {A : Type} (f : A -> R) (l : list A) : R :=
  match l with [] => 0 | c :: t => f c + sum f t end.

Definition pair := list (R * R).
Definition pos (a : R) := Rmax 0 a.
Definition gain (x : R) (c : R * R) := pos (fst c - x * snd c).
Definition delta (x : R) (l : pair) := sum (gain x) l.
Definition nonneg (l : pair) := Forall (fun c => 0 <= fst c /\ 0 <= snd c) l.
Definition dominated (l m : pair) := forall x, 0 <= x -> delta x l <= delta x m.
Definition same (l m : pair) := forall f : R * R -> R, sum f l = sum f m.

Ltac cases := unfold pos, Rmax, Rmin; repeat destruct Rle_dec.

Lemma pos_sub a b : pos (a + b) <= pos a + pos b.
Proof. cases; lra. Qed.

Lemma pos_mono a b : a <= b -> pos a <= pos b.
Proof. cases; lra. Qed.

Lemma pos_scale u a : 0 <= u -> pos (u * a) = u * pos a.
Proof. intro H; unfold pos, Rmax; destruct (Rle_dec 0 (u * a)), (Rle_dec 0 a); try lra; nra. Qed.

Section Sums.
Context {A : Type}.
Implicit Types (f g : A -> R) (l m : list A).

Lemma sum_app f l m : sum f (l ++ m) = sum f l + sum f m.
Proof. induction l as [|c t IH]; simpl; lra. Qed.

Lemma sum_ext f g l : (forall c, f c = g c) -> sum f l = sum g l.
Proof. intro H; induction l as [|c t IH]; simpl; [reflexivity|]. rewrite H, IH. reflexivity. Qed.

Lemma sum_mono f g l : (forall c, In c l -> f c <= g c) -> sum f l <= sum g l.
Proof.
  induction l as [|c t IH]; simpl; intro H; [lra|].
  assert (f c <= g c) by auto. assert (sum f t <= sum g t) by auto. lra.
Qed.

Lemma sum_plus f g l : sum (fun c => f c + g c) l = sum f l + sum g l.
Proof. induction l as [|c t IH]; simpl; lra. Qed.

Lemma sum_scale k f l : sum (fun c => k * f c) l = k * sum f l.
Proof. induction l as [|c t IH]; simpl; [ring|]. rewrite IH. ring. Qed.

Lemma sum_zero l : sum (fun _ => 0) l = 0.
Proof. induction l as [|c t IH]; simpl; lra. Qed.
End Sums.

Lemma sum_map {A B} (g : A -> B) f l : sum f (map g l) = sum (fun c => f (g c)) l.
Proof. induction l as [|c t IH]; simpl; [reflexivity|]. rewrite IH. reflexivity. Qed.

Lemma sum_exchange {A B} (f : A -> B -> R) l m :
  sum (fun d => sum (fun c => f c d) l) m = sum (fun c => sum (fun d => f c d) m) l.
Proof.
  induction m as [|d t IH]; simpl; [symmetry; apply sum_zero|].
  rewrite IH. symmetry. apply sum_plus.
Qed.

(* What delta is: no set of outcomes gains more, and the set where p > x q gains it. *)
Theorem delta_is_largest x l (member : R * R -> bool) :
  sum (fun c : R * R => if member c then fst c - x * snd c else 0) l <= delta x l.
Proof. apply sum_mono. intros c _. unfold gain. destruct (member c); cases; lra. Qed.

Theorem delta_is_attained x l :
  exists member : R * R -> bool, sum (fun c : R * R => if member c then fst c - x * snd c else 0) l = delta x l.
Proof.
  exists (fun c : R * R => if Rle_dec 0 (fst c - x * snd c) then true else false).
  apply sum_ext. intro c. unfold gain, pos, Rmax. destruct Rle_dec; reflexivity.
Qed.

(* 1. Merging the outcomes of a cell is post-processing: delta falls. *)
Theorem merge_below x (l : pair) : pos (sum fst l - x * sum snd l) <= delta x l.
Proof.
  induction l as [|[p q] t IH]; unfold delta in *; simpl.
  - cases; lra.
  - unfold gain at 1; simpl.
    replace (p + sum fst t - x * (q + sum snd t))
      with ((p - x * q) + (sum fst t - x * sum snd t)) by ring.
    eapply Rle_trans; [apply pos_sub|]. lra.
Qed.

(* 2. Ratios p/q in [lo, hi] are replaced by the two ends with the same P- and Q-mass: delta rises. *)
Section TwoPoint.
Variables lo hi : R.
Hypothesis order : 0 < lo < hi.
Definition high (c : R * R) := (fst c - lo * snd c) * hi / (hi - lo).
Definition low (c : R * R) := fst c - high c.
Definition in_cell (c : R * R) := lo * snd c <= fst c <= hi * snd c.

Lemma high_nonneg c : in_cell c -> 0 <= high c.
Proof.
  intros [H _]. unfold high. apply Rmult_le_pos; [apply Rmult_le_pos; lra|].
  left; apply Rinv_0_lt_compat; lra.
Qed.

Lemma low_nonneg c : in_cell c -> 0 <= low c.
Proof.
  intros [H1 H2]. unfold low, high.
  replace (fst c - (fst c - lo * snd c) * hi / (hi - lo))
    with (lo * (hi * snd c - fst c) / (hi - lo)) by (field; lra).
  apply Rmult_le_pos; [apply Rmult_le_pos; lra|]. left; apply Rinv_0_lt_compat; lra.
Qed.

Lemma gain_split x c : in_cell c ->
  gain x c <= low c * pos (1 - x / lo) + high c * pos (1 - x / hi).
Proof.
  intro H. rewrite <- !pos_scale by (apply low_nonneg || apply high_nonneg; assumption).
  eapply Rle_trans; [|apply pos_sub]. apply pos_mono. apply Req_le.
  unfold low, high. field. lra.
Qed.

Theorem split_above x l : Forall in_cell l ->
  delta x l <= delta x [(sum low l, sum low l / lo); (sum high l, sum high l / hi)].
Proof.
  intro H. rewrite Forall_forall in H.
  assert (A : 0 <= sum low l /\ 0 <= sum high l).
  { rewrite <- (sum_zero l). split; apply sum_mono; auto using low_nonneg, high_nonneg. }
  assert (B : delta x l <= sum low l * pos (1 - x / lo) + sum high l * pos (1 - x / hi)).
  { rewrite (Rmult_comm (sum low l)), (Rmult_comm (sum high l)), <- !sum_scale, <- sum_plus.
    apply sum_mono. intros c I. eapply Rle_trans; [apply gain_split; auto|]. lra. }
  eapply Rle_trans; [exact B|]. unfold delta, gain; simpl.
  replace (sum low l - x * (sum low l / lo)) with (sum low l * (1 - x / lo)) by (field; lra).
  replace (sum high l - x * (sum high l / hi)) with (sum high l * (1 - x / hi)) by (field; lra).
  rewrite !pos_scale by lra. lra.
Qed.
End TwoPoint.

(* 3. Rounding. Above: masses down, the missing P-mass at infinity (q = 0). Below: p down, q up. *)
Theorem round_above x p q p' q' : 0 <= x -> p' <= p -> q' <= q ->
  gain x (p, q) <= gain x (p', q') + gain x (p - p', 0).
Proof.
  unfold gain; simpl; intros. assert (x * q' <= x * q) by (apply Rmult_le_compat_l; lra).
  cases; lra.
Qed.

Theorem round_below x p q p' q' : 0 <= x -> p' <= p -> q <= q' -> gain x (p', q') <= gain x (p, q).
Proof. unfold gain; simpl; intros; apply pos_mono; nra. Qed.

(* 4. Independent rounds: the product of pairs. *)
Definition mul (c d : R * R) := (fst c * fst d, snd c * snd d).
Definition prod (l m : pair) : pair := flat_map (fun d => map (fun c => mul c d) l) m.
Fixpoint power (n : nat) (l : pair) : pair :=
  match n with O => [(1, 1)] | S k => prod (power k l) l end.

Lemma sum_prod f l m : sum f (prod l m) = sum (fun d => sum (fun c => f (mul c d)) l) m.
Proof.
  induction m as [|d t IH]; simpl; [reflexivity|]. unfold prod in *.
  rewrite sum_app, sum_map, IH. reflexivity.
Qed.

Lemma mul_comm c d : mul c d = mul d c.
Proof. unfold mul. f_equal; ring. Qed.

Lemma mul_assoc a b c : mul (mul a b) c = mul a (mul b c).
Proof. unfold mul; simpl. f_equal; ring. Qed.

Lemma same_delta l m : same l m -> forall x, delta x l = delta x m.
Proof. intros H x. apply H. Qed.

Lemma same_prod l l' m m' : same l l' -> same m m' -> same (prod l m) (prod l' m').
Proof.
  intros H K f. rewrite !sum_prod, K. apply sum_ext. intro d. apply H.
Qed.

Lemma prod_comm l m : same (prod l m) (prod m l).
Proof.
  intro f. rewrite !sum_prod, sum_exchange. apply sum_ext. intro c. apply sum_ext. intro d.
  now rewrite mul_comm.
Qed.

Lemma prod_assoc l m n : same (prod (prod l m) n) (prod l (prod m n)).
Proof.
  intro f. rewrite !sum_prod. apply sum_ext. intro d. rewrite sum_prod.
  apply sum_ext. intro c. apply sum_ext. intro e. now rewrite mul_assoc.
Qed.

Lemma prod_unit l : same (prod [(1, 1)] l) l.
Proof.
  intro f. rewrite sum_prod. apply sum_ext. intros [p q]. simpl. unfold mul; simpl.
  rewrite !Rmult_1_l. ring.
Qed.

Lemma power_one l : same (power 1 l) l.
Proof. apply prod_unit. Qed.

Lemma power_add a b l : same (prod (power a l) (power b l)) (power (a + b) l).
Proof.
  induction b as [|b IH]; intro f.
  - rewrite Nat.add_0_r. cbn [power]. rewrite (prod_comm _ _ f). apply prod_unit.
  - rewrite Nat.add_succ_r. cbn [power]. rewrite <- (prod_assoc _ _ _ f).
    apply same_prod; [exact IH|intro g; reflexivity].
Qed.

Lemma nonneg_prod l m : nonneg l -> nonneg m -> nonneg (prod l m).
Proof.
  unfold nonneg. rewrite !Forall_forall. intros H K c I.
  apply in_flat_map in I as (d & I & J). apply in_map_iff in J as (e & <- & J).
  specialize (H _ J). specialize (K _ I). simpl. split; apply Rmult_le_pos; tauto.
Qed.

Lemma nonneg_power n l : nonneg l -> nonneg (power n l).
Proof.
  intro H. induction n as [|n IH]; simpl; [|apply nonneg_prod; assumption].
  constructor; [simpl; lra|constructor].
Qed.

Lemma delta_scaled x u v l : 0 <= x -> 0 <= u -> 0 <= v -> nonneg l ->
  sum (fun c => gain x (mul c (u, v))) l = if Rlt_dec 0 u then u * delta (x * v / u) l else 0.
Proof.
  intros Hx Hu Hv H. destruct Rlt_dec as [U|U].
  - unfold delta. rewrite <- sum_scale. apply sum_ext. intros [p q]. unfold gain; simpl.
    rewrite <- pos_scale by lra. f_equal. field. lra.
  - rewrite <- (sum_zero l). induction H as [|[p q] t [P Q] _ IH]; simpl; [reflexivity|].
    rewrite IH. simpl in *. assert (u = 0) by lra. subst. unfold gain; simpl.
    assert (0 <= x * (q * v)) by (apply Rmult_le_pos; [|apply Rmult_le_pos]; assumption).
    cases; lra.
Qed.

Theorem composes_left l l' m : nonneg l -> nonneg l' -> nonneg m ->
  dominated l l' -> dominated (prod l m) (prod l' m).
Proof.
  intros Hl Hl' Hm D x Hx. unfold delta. rewrite !sum_prod. apply sum_mono. intros [u v] I.
  unfold nonneg in Hm. rewrite Forall_forall in Hm. destruct (Hm _ I) as [U V]. simpl in U, V.
  rewrite !delta_scaled by assumption. destruct Rlt_dec as [G|G]; [|lra].
  apply Rmult_le_compat_l; [lra|]. apply D.
  apply Rmult_le_pos; [apply Rmult_le_pos; assumption|left; apply Rinv_0_lt_compat; assumption].
Qed.

Theorem composes l l' m m' : nonneg l -> nonneg l' -> nonneg m -> nonneg m' ->
  dominated l l' -> dominated m m' -> dominated (prod l m) (prod l' m').
Proof.
  intros Hl Hl' Hm Hm' D E x Hx.
  eapply Rle_trans; [apply (composes_left l l' m); assumption|].
  rewrite (same_delta _ _ (prod_comm l' m)), (same_delta _ _ (prod_comm l' m')).
  apply composes_left; assumption.
Qed.

Theorem composes_power n l l' : nonneg l -> nonneg l' ->
  dominated l l' -> dominated (power n l) (power n l').
Proof.
  intros Hl Hl' D. induction n as [|n IH]; simpl; [intros x _; lra|].
  apply composes; auto using nonneg_power.
Qed.
