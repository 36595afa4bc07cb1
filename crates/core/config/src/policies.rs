use polypath_congestion::Algorithms;
use polypath_link::impairment::Impairments;
use polypath_link::middlebox::Middleboxes;
use polypath_link::queue::Disciplines;
use polypath_mptcp::path_manager::PathManagers;
use polypath_mptcp::scheduler::Schedulers;
use polypath_units::named::{Kind, Named, Registry, UnknownPolicy};

/// A kind of policy of which [`Policies`] has a registry.
pub trait PolicyKind: Kind {
    /// Its registry.
    fn registry(policies: &Policies) -> &Registry<Self>;

    /// Its registry, to add to.
    fn registry_mut(policies: &mut Policies) -> &mut Registry<Self>;
}

/// The one list of kinds: [`Policies`], its registries and the schema's examples follow from it.
macro_rules! kinds {
    ($($kind:ty => $field:ident),* $(,)?) => {
        /// The policies of all kinds that can be chosen by name: ours, and what a program adds.
        ///
        /// Scenario files, experiment files and the command's options find names here, so that a policy that is added is known to all of
        /// them:
        ///
        /// ```
        /// # mod polypath { pub use {polypath_config::Policies, polypath_link as link, polypath_mptcp as mptcp}; }
        /// use polypath::Policies;
        /// use polypath::link::impairment::{Fate, Impairment, Passing, Policy, Random};
        /// use polypath::mptcp::scheduler;
        ///
        /// #[derive(Debug)]
        /// struct Void;
        ///
        /// impl Impairment for Void {
        ///     fn handle_packet(&mut self, _: Passing, fate: &mut Fate, _: &mut Random) {
        ///         fate.lose();
        ///     }
        /// }
        ///
        /// let policies = Policies::default().with(Policy::new("void", |_| Box::new(Void)));
        /// let impairment: Policy = policies.find("void").unwrap();
        /// let scheduler: scheduler::Policy = policies.find("lowest-rtt").unwrap();
        /// let error = policies.find::<polypath::link::queue::Disciplines>("void").unwrap_err();
        /// assert_eq!(error.to_string(), "no queue discipline \"void\"; expected one of drop-tail");
        /// ```
        #[derive(Clone, Debug, Default)]
        pub struct Policies {
            $($field: Registry<$kind>,)*
        }

        /// What policies of each kind are called.
        #[cfg(feature = "files")]
        pub(crate) const KINDS: &[&str] = &[$(<$kind>::WHAT),*];

        impl Policies {
            /// The names of a kind, by what its policies are called; `None` if there is no such kind.
            #[cfg(feature = "files")]
            pub(crate) fn names_of(&self, what: &str) -> Option<alloc::vec::Vec<&'static str>> {
                $(if what == <$kind>::WHAT {
                    return Some(self.$field.iter().map(|policy| policy.name()).collect());
                })*
                None
            }
        }

        $(
        impl PolicyKind for $kind {
            fn registry(policies: &Policies) -> &Registry<Self> {
                &policies.$field
            }

            fn registry_mut(policies: &mut Policies) -> &mut Registry<Self> {
                &mut policies.$field
            }
        }
        )*
    };
}

kinds! {
    Schedulers => schedulers,
    Algorithms => congestion_controls,
    PathManagers => path_managers,
    Disciplines => disciplines,
    Middleboxes => middleboxes,
    Impairments => impairments,
}

impl Policies {
    /// The same with another policy, of any kind. One with the name of another takes its place.
    #[must_use]
    pub fn with<K: PolicyKind>(mut self, policy: Named<K>) -> Self {
        self.add(policy);
        self
    }

    /// Adds a policy, of any kind. One with the name of another takes its place.
    pub fn add<K: PolicyKind>(&mut self, policy: Named<K>) {
        K::registry_mut(self).add(policy);
    }

    /// The policy of a kind by its name; a parameter may follow after a colon. Upper and lower case are the same.
    ///
    /// # Errors
    /// That there is none, or that its parameter makes no sense; lists the names.
    pub fn find<K: PolicyKind>(&self, text: &str) -> Result<Named<K>, UnknownPolicy<K>> {
        K::registry(self).find(text)
    }

    /// The registry of a kind.
    #[must_use]
    pub fn registry<K: PolicyKind>(&self) -> &Registry<K> {
        K::registry(self)
    }

    /// All policies of a kind, ours first.
    pub fn all<K: PolicyKind>(&self) -> impl Iterator<Item = &Named<K>> {
        K::registry(self).iter()
    }
}
