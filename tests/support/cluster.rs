//! A Redis Cluster for one test.

use std::time::{Duration, Instant};

use tower_throttle::{DAY, Limit, Limiter, MINUTE, Policy, RedisStore, RedisStoreBuilder};

use super::proxy::Proxy;
use super::redis::{Server, free_port};
use super::sentinel::until;

const SLOTS: usize = 16_384;
/// No server listens there.
const UNKNOWN: u16 = 1;

/// A node forgets one that it was to meet and that has not answered within this time, as on a busy
/// machine.
const HANDSHAKE: Duration = Duration::from_secs(1);

const OPTIONS: [&str; 6] = [
    "--cluster-enabled",
    "yes",
    // Nodes of a busy machine may stand still for seconds without being taken for dead.
    "--cluster-node-timeout",
    "5000",
    "--repl-diskless-sync-delay",
    "0",
];

pub struct Cluster {
    pub masters: Vec<Server>,
    /// The replica of the master at the same position; none in a cluster without replicas.
    pub replicas: Vec<Server>,
    /// Where the masters speak TLS, also to each other; none in a cluster without TLS.
    pub tls_ports: Vec<u16>,
    /// The proxy in front of the master at the same position; none in a cluster that is asked
    /// directly.
    pub proxies: Vec<Proxy>,
}

impl Cluster {
    /// Three masters that share the slots.
    pub fn start() -> Self {
        Self::start_with(0, &[])
    }

    /// Three masters, each of which serves its slots even while others do not.
    pub fn without_full_coverage() -> Self {
        Self::start_with(0, &["--cluster-require-full-coverage", "no"])
    }

    /// With a replica for each master.
    pub fn with_replicas() -> Self {
        Self::start_with(3, &[])
    }

    /// Three masters that speak TLS, with these options.
    pub fn over_tls(options: &[&str]) -> Self {
        let start = |_| {
            let port = free_tls_port();
            let tls = ["--tls-cluster", "yes", "--tls-port", &port.to_string()];
            let master = Server::start_with(&[&OPTIONS[..], &tls, options].concat());
            (master, port)
        };
        let (masters, tls_ports) = (0..3).map(start).unzip();
        Self::of(masters, Vec::new(), tls_ports)
    }

    /// Three masters, each behind a proxy that clients are sent to. Among themselves they speak
    /// directly.
    pub fn behind_proxies() -> Self {
        let start = |_| {
            let proxy = Proxy::to(UNKNOWN);
            let master = Server::start_knowing(|port| {
                let own = [
                    "--cluster-announce-port".to_owned(),
                    proxy.port().to_string(),
                    "--cluster-announce-bus-port".to_owned(),
                    bus_port(port).to_string(),
                    // A node that a test stops for a while stays a master.
                    "--cluster-node-timeout".to_owned(),
                    "60000".to_owned(),
                ];
                let usual = OPTIONS.map(str::to_owned);
                usual.into_iter().chain(own).collect()
            });
            proxy.lead_to(master.port());
            (master, proxy)
        };
        let (masters, proxies) = (0..3).map(start).unzip();
        Self::over(Self {
            masters,
            replicas: Vec::new(),
            tls_ports: Vec::new(),
            proxies,
        })
    }

    fn start_with(replicas: usize, options: &[&str]) -> Self {
        let start = |_| Server::start_with(&[&OPTIONS[..], options].concat());
        let masters = (0..3).map(start).collect();
        Self::of(masters, (0..replicas).map(start).collect(), Vec::new())
    }

    fn of(masters: Vec<Server>, replicas: Vec<Server>, tls_ports: Vec<u16>) -> Self {
        Self::over(Self {
            masters,
            replicas,
            tls_ports,
            proxies: Vec::new(),
        })
    }

    /// Makes a cluster of these nodes.
    fn over(cluster: Self) -> Self {
        for (position, master) in cluster.masters.iter().enumerate() {
            master.query::<()>(("CLUSTER", "ADDSLOTS", cluster.first_slots_of(position)));
        }
        for (position, node) in cluster.nodes().enumerate() {
            node.query::<()>(("CLUSTER", "SET-CONFIG-EPOCH", position + 1));
        }
        cluster.introduce();
        for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
            let replicate = ("CLUSTER", "REPLICATE", id(master));
            until("the replica knows its master", || {
                replica.try_query::<()>(&replicate).is_ok()
            });
            until("the replica follows", || {
                replica
                    .info("replication")
                    .contains("master_link_status:up")
            });
        }
        cluster.wait_until_each_says(&["cluster_state:ok", "cluster_slots_ok:16384"]);
        cluster
    }

    fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.masters.iter().chain(&self.replicas)
    }

    /// Has all nodes meet the first one, until all know each other.
    fn introduce(&self) {
        let known = format!("cluster_known_nodes:{}", self.nodes().count());
        let (port, bus_port) = (self.port(0), bus_port(self.own_port(0)));
        let mut met: Option<Instant> = None;
        until("the nodes know each other", || {
            if met.is_none_or(|met| met.elapsed() >= 2 * HANDSHAKE) {
                for node in self.nodes() {
                    node.query::<()>(("CLUSTER", "MEET", "127.0.0.1", port, bus_port));
                }
                met = Some(Instant::now());
            }
            self.nodes().all(|node| says(node, &[&known]))
        });
    }

    fn wait_until_each_says(&self, lines: &[&str]) {
        for node in self.nodes() {
            until("the cluster is ready", || says(node, lines));
        }
    }

    /// Names one node; the others are discovered.
    pub fn url(&self) -> String {
        let scheme = match self.tls_ports[..] {
            [] => "redis-cluster",
            _ => "rediss-cluster",
        };
        format!("{scheme}://127.0.0.1:{}", self.port(0))
    }

    /// A store that waits for the answers of all nodes, however busy the machine is.
    pub fn patient(&self) -> RedisStoreBuilder {
        RedisStore::builder(&self.url()).wait_for_other_nodes(MINUTE)
    }

    /// Where clients find a master.
    fn port(&self, position: usize) -> u16 {
        let proxy = self.proxies.get(position);
        proxy.map_or_else(|| self.own_port(position), Proxy::port)
    }

    fn own_port(&self, position: usize) -> u16 {
        let tls = self.tls_ports.get(position);
        tls.copied()
            .unwrap_or_else(|| self.masters[position].port())
    }

    /// Two of these subjects on different masters, and which masters those are.
    pub async fn apart<'a>(&self, store: &RedisStore, of: &[&'a str]) -> [(&'a str, usize); 2] {
        let policy = Policy::new("apart", Limit::fixed_window(1, DAY));
        let limiter = Limiter::builder(store.clone(), [policy]).timeout(MINUTE);
        let limiter = limiter.build().unwrap();
        let mut first = None;
        for subject in of {
            let decision = limiter.check("apart", *subject).await.unwrap();
            assert_eq!(decision.store_failure(), None);
            let (master, _) = self.master_of(":apart");
            let _ = limiter.reset("apart", *subject).await.unwrap();
            let (_, other) = *first.get_or_insert((*subject, master));
            if other != master {
                return [first.unwrap(), (*subject, master)];
            }
        }
        panic!("all subjects are on one node");
    }

    /// The position of the master that has a key.
    pub fn master_of(&self, key_ends: &str) -> (usize, String) {
        let found = self
            .masters
            .iter()
            .enumerate()
            .find_map(|(position, master)| {
                let mut keys = master.keys().into_iter();
                Some((position, keys.find(|key| key.ends_with(key_ends))?))
            });
        found.unwrap_or_else(|| panic!("no master has a key that ends with {key_ends}"))
    }

    /// Makes one master forget another one for a minute.
    pub fn forget(&self, forgotten: usize, by: usize) {
        let forgotten = id(&self.masters[forgotten]);
        self.masters[by].query::<()>(("CLUSTER", "FORGET", forgotten));
    }

    /// Begins to move a key's slot from one master to another.
    pub fn begin_to_move(&self, key: &str, from: usize, to: usize) -> u16 {
        let slot = self.slot_of(key);
        self.open(&[slot.into()], from, to);
        slot
    }

    /// Begins to move all slots that one master has had since the start.
    pub fn begin_to_move_all(&self, from: usize, to: usize) {
        self.open(&self.first_slots_of(from), from, to);
    }

    fn slot_of(&self, key: &str) -> u16 {
        self.masters[0].query(("CLUSTER", "KEYSLOT", key))
    }

    fn open(&self, slots: &[usize], from: usize, to: usize) {
        let ids = [from, to].map(|position| id(&self.masters[position]));
        self.set_slots(to, slots, &["IMPORTING", &ids[0]]);
        self.set_slots(from, slots, &["MIGRATING", &ids[1]]);
    }

    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        self.masters[from].query::<()>(("MIGRATE", "127.0.0.1", self.port(to), key, 0, 5_000));
    }

    /// Moves a key's slot with all its keys in one step, as servers from Valkey 9 on do it by
    /// themselves; key by key where they cannot.
    pub fn move_slot(&self, key: &str, from: usize, to: usize) {
        let known: Vec<redis::Value> =
            self.masters[from].query(("COMMAND", "INFO", "CLUSTER|MIGRATESLOTS"));
        if known == [redis::Value::Nil] {
            let slot = self.begin_to_move(key, from, to);
            self.move_key(key, from, to);
            return self.end_move(slot, from, to);
        }
        let slot = self.slot_of(key);
        let slots = ("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot);
        let moving = (slots, ("NODE", id(&self.masters[to])));
        until("the move before is over", || {
            self.masters[from].try_query::<()>(&moving).is_ok()
        });
        let has = |position: usize| self.masters[position].keys().iter().any(|own| own == key);
        until("the slot has moved", || has(to) && !has(from));
    }

    pub fn end_move(&self, slot: u16, from: usize, to: usize) {
        let id = id(&self.masters[to]);
        for position in [to, from] {
            self.set_slots(position, &[slot.into()], &["NODE", &id]);
        }
    }

    /// All at once: a node writes to its disk before it answers.
    fn set_slots(&self, position: usize, slots: &[usize], words: &[&str]) {
        let mut all = redis::pipe();
        for slot in slots {
            let set_slot = all.cmd("CLUSTER").arg("SETSLOT");
            set_slot.arg(*slot).arg(words).ignore();
        }
        let mut connection = self.masters[position].connection().unwrap();
        all.query::<()>(&mut connection).unwrap();
    }

    fn first_slots_of(&self, position: usize) -> Vec<usize> {
        let count = self.masters.len();
        (position * SLOTS / count..(position + 1) * SLOTS / count).collect()
    }
}

/// Whether a node says all of this about its cluster.
fn says(node: &Server, lines: &[&str]) -> bool {
    let info: String = node.query(("CLUSTER", "INFO"));
    lines.iter().all(|line| info.contains(line))
}

fn free_tls_port() -> u16 {
    let mut ports = std::iter::repeat_with(free_port);
    ports
        .find(|port| bus_port(*port) <= u16::MAX.into())
        .unwrap()
}

/// Where a node speaks to other nodes, unless configured otherwise. A node without such a port does
/// not start.
fn bus_port(port: u16) -> u32 {
    u32::from(port) + 10_000
}

fn id(server: &Server) -> String {
    server.query(("CLUSTER", "MYID"))
}
