(* Lemma A for any two laws: whatever finite partition a neighbour's laws are seen through, delta is at
   most that of the two-point table of the kernel's cells. Events are elements of a Boolean algebra, of
   which only two facts are used; a finite partition is a tree of events that split what is left. *)
Require Import Reals Lra List.
From dpcore Require Import Pairs.
Import ListNotations.
Open Scope R_scope.

Section Partitions.
Variable event : Type.
Variable meet : event -> event -> event.
Variable compl : event -> event.
Hypothesis meet_swap : forall a s t, meet (meet a s) t = meet (meet a t) s.

(* The two laws: masses >= 0, additive. *)
Variables P Q : event -> R.
Hypothesis P_split : forall a s, P a = P (meet a s) + P (meet a (compl s)).
Hypothesis Q_split : forall a s, Q a = Q (meet a s) + Q (meet a (compl s)).

Inductive partition := Whole | Split (s : event) (inside outside : partition).

Fixpoint cells (a : event) (t : partition) : list event :=
  match t with
  | Whole => [a]
  | Split s l r => cells (meet a s) l ++ cells (meet a (compl s)) r
  end.

Definition masses (c : event) : R * R := (P c, Q c).
Definition seen (a : event) (t : partition) : pair := map masses (cells a t).

(* Each cell of t is split further, as t' does. *)
Fixpoint refined (t t' : partition) : partition :=
  match t with Whole => t' | Split s l r => Split s (refined l t') (refined r t') end.

Lemma cells_refined t t' : forall a, cells a (refined t t') = flat_map (fun c => cells c t') (cells a t).
Proof.
  induction t as [|s l IHl r IHr]; intro a; simpl; [now rewrite app_nil_r|].
  now rewrite IHl, IHr, flat_map_app.
Qed.

Lemma sum_flat_map {A B} (f : B -> R) (g : A -> list B) l :
  sum f (flat_map g l) = sum (fun c => sum f (g c)) l.
Proof. induction l as [|c l IH]; simpl; [reflexivity|]. now rewrite sum_app, IH. Qed.

Lemma cells_meet t : forall a s, cells (meet a s) t = map (fun c => meet c s) (cells a t).
Proof.
  induction t as [|u l IHl r IHr]; intros a s; simpl; [reflexivity|].
  now rewrite map_app, <- IHl, <- IHr, (meet_swap a s u), (meet_swap a s (compl u)).
Qed.

Lemma total_masses t : forall a, P a = sum P (cells a t) /\ Q a = sum Q (cells a t).
Proof.
  induction t as [|s l IHl r IHr]; intro a; simpl; [lra|]. rewrite !sum_app.
  destruct (IHl (meet a s)) as [<- <-], (IHr (meet a (compl s))) as [<- <-].
  split; [apply P_split|apply Q_split].
Qed.

Definition delta_seen x a t := delta x (seen a t).

Lemma delta_cells x a t : delta_seen x a t = sum (fun c => gain x (masses c)) (cells a t).
Proof. unfold delta_seen, delta, seen. apply sum_map. Qed.

Lemma delta_refined x a t t' :
  delta_seen x a (refined t t') = sum (fun c => delta_seen x c t') (cells a t).
Proof.
  rewrite delta_cells, cells_refined, sum_flat_map. apply sum_ext. intro c. now rewrite delta_cells.
Qed.

(* A finer partition shows more, whichever of the two comes first. *)
Theorem refining_raises x t t' : forall a, delta_seen x a t' <= delta_seen x a (refined t t').
Proof.
  induction t' as [|s l IHl r IHr]; intro a; rewrite delta_refined.
  - unfold delta_seen, seen. simpl. unfold delta. simpl. rewrite Rplus_0_r.
    destruct (total_masses t a) as [EP EQ]. unfold gain at 1. simpl. rewrite EP, EQ.
    assert (M := merge_below x (map masses (cells a t))). rewrite !sum_map in M. simpl in M.
    eapply Rle_trans; [exact M|]. unfold delta. rewrite sum_map. apply sum_mono. intros c _. simpl. lra.
  - assert (E : delta_seen x a (Split s l r)
                = delta_seen x (meet a s) l + delta_seen x (meet a (compl s)) r).
    { unfold delta_seen, delta, seen. simpl. now rewrite map_app, sum_app. }
    rewrite E. specialize (IHl (meet a s)). specialize (IHr (meet a (compl s))).
    rewrite delta_refined, cells_meet, sum_map in IHl, IHr.
    eapply Rle_trans; [apply Rplus_le_compat; eassumption|]. rewrite <- sum_plus. apply sum_mono.
    intros c _. unfold delta_seen, delta, seen. simpl. rewrite map_app, sum_app. lra.
Qed.

(* A cell whose ratio dP/dQ lies in [lo, hi] on every part of it. *)
Definition bounded (c : event * (R * R)) :=
  0 < fst (snd c) < snd (snd c)
  /\ forall t, Forall (in_cell (fst (snd c)) (snd (snd c))) (seen (fst c) t).

Definition two_point (c : event * (R * R)) : pair :=
  let (lo, hi) := snd c in
  [(low lo hi (masses (fst c)), low lo hi (masses (fst c)) / lo);
   (high lo hi (masses (fst c)), high lo hi (masses (fst c)) / hi)].

Lemma high_linear lo hi t c : lo < hi -> sum (high lo hi) (seen c t) = high lo hi (masses c).
Proof.
  intro H. unfold seen. rewrite sum_map. destruct (total_masses t c) as [EP EQ].
  unfold high, masses. simpl. rewrite EP, EQ. generalize (cells c t). intro l.
  induction l as [|b l IH]; simpl; [field; lra|]. rewrite IH. field. lra.
Qed.

Lemma low_linear lo hi t c : lo < hi -> sum (low lo hi) (seen c t) = low lo hi (masses c).
Proof.
  intro H. assert (E := high_linear lo hi t c H). unfold low.
  transitivity (sum fst (seen c t) - sum (high lo hi) (seen c t)).
  - generalize (seen c t). intro l. induction l as [|b l IH]; simpl; [ring|]. rewrite IH. ring.
  - rewrite E. unfold seen. rewrite sum_map. simpl. rewrite (proj1 (total_masses t c)). reflexivity.
Qed.

Theorem cells_above x a t (bounds : list (event * (R * R))) :
  cells a t = map fst bounds -> Forall bounded bounds ->
  forall t', delta_seen x a t' <= delta x (flat_map two_point bounds).
Proof.
  intros E B t'. eapply Rle_trans; [apply (refining_raises x t)|]. rewrite delta_refined, E, sum_map.
  unfold delta at 1. rewrite sum_flat_map. apply sum_mono. intros [c [lo hi]] I.
  rewrite Forall_forall in B. destruct (B _ I) as [O F]. simpl in O, F. simpl fst.
  assert (S := split_above lo hi O x (seen c t') (F t')).
  rewrite low_linear, high_linear in S by lra. exact S.
Qed.

(* So (epsilon, delta)-privacy: no event gains more. *)
Corollary event_above x a t bounds : cells a t = map fst bounds -> Forall bounded bounds ->
  forall s, P (meet a s) - x * Q (meet a s) <= delta x (flat_map two_point bounds).
Proof.
  intros E B s. eapply Rle_trans; [|apply (cells_above x a t bounds E B (Split s Whole Whole))].
  unfold delta_seen, delta, seen, gain. simpl. cases; lra.
Qed.
End Partitions.

Print Assumptions event_above.
