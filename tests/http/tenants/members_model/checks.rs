//! The checks at the end of a history.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use tollkeeper::db::sql;

use super::history::{Entry, FinishedCall, History};
use super::model::{ORGANIZATION_ROLES, OWNER, PEOPLE, PROJECT_OWNER, PROJECT_ROLES, State, Step};

/// Counts of the cases that the histories covered.
#[derive(Default)]
pub struct Figures {
    pub calls: usize,
    pub changes: usize,
    pub refusals: usize,
    pub by_keys: usize,
    /// Calls with other commits during them, so that several states may explain the answer.
    pub raced: usize,
    pub deleted: usize,
    pub reads: usize,
}

/// Replays the audit trail through the model: each entry must be allowed in its position, and every other
/// answer must fit a state during the call. Returns the final state.
pub fn replay(history: &History, all: &[FinishedCall], entries: &[Entry], figures: &mut Figures) -> State {
    let by_request: HashMap<&str, &FinishedCall> =
        all.iter().map(|done| (done.request_id.as_str(), done)).collect();
    let mut states = vec![history.start.clone()];
    let mut recorded = BTreeSet::new();
    for entry in entries {
        let Some(done) = by_request.get(entry.request_id.as_str()) else {
            history.fail(&format!("no call explains {entry:?}"), all, entries);
        };
        let mut state = states.last().unwrap().clone();
        if let Err(why) = state.apply(&done.call, &entry.action, &entry.target, &history.ids) {
            history.fail(&format!("{done:?} should not have been done: {why}\n{state:?}"), all, entries);
        }
        let fits = entry.actor == history.actor(&done.call) && done.status == 200;
        if !fits || entry.position <= done.seen[0] || entry.position > done.seen[1] {
            history.fail(&format!("{entry:?} doesn't match {done:?}"), all, entries);
        }
        states.push(state);
        recorded.insert(entry.request_id.as_str());
    }
    for done in all {
        figures.calls += 1;
        figures.by_keys += usize::from(done.call.with_key);
        if recorded.contains(done.request_id.as_str()) {
            figures.changes += 1;
            continue;
        }
        figures.refusals += usize::from(done.status != 200);
        let [from, to] = done.seen.map(|seen| entries.partition_point(|entry| entry.position <= seen));
        figures.raced += usize::from(from < to);
        let fits = states[from..=to].iter().any(|state| state.explains(&done.call, done.status, &done.code));
        if !fits && !is_a_race_of_gate_and_lock(done, &states[from..=to]) {
            let what = format!("{done:?} has no explanation in {:?}", &states[from..=to]);
            history.fail(&what, all, entries);
        }
    }
    states.pop().unwrap()
}

/// The gate and the decision under the lock may see different states. A refusal may then have a reason that
/// no single state would return first, but it must be a refusal in one of the states.
fn is_a_race_of_gate_and_lock(done: &FinishedCall, states: &[State]) -> bool {
    let is_refusal = [403, 404, 409].contains(&done.status);
    // A token replaces another one when a user verifies their address twice at the same time.
    let is_replaced = matches!(done.call.step, Step::ProveAddress) && done.code == "invalid_token";
    is_replaced
        || is_refusal && states.len() > 1 && states.iter().any(|state| state.decide(&done.call).is_err())
}

/// Compares lists, counts and details with the final state, as an owner and as every member sees them.
pub async fn compare(history: &History, state: &State, figures: &mut Figures) -> Result<(), String> {
    let organization = history.place.organization_path();
    let reader = &mut Reader { history, figures };
    if !state.exists {
        reader.figures.deleted += 1;
        for person in 0..PEOPLE {
            reader.expect(person, &organization, 404).await?;
        }
        return assert_nothing_is_left(history).await;
    }
    let owner = state.roles.iter().position(|role| *role == OWNER).ok_or("no owner")?;
    let members = named(history, &state.roles, &ORGANIZATION_ROLES);
    same("members", &members, &reader.list(owner, &format!("{organization}/members"), "members").await?)?;
    let mut by_role = 0;
    for role in &ORGANIZATION_ROLES[1..] {
        let path = format!("{organization}/members?role={role}&page_size=1");
        by_role += reader.data(owner, &path).await?["total"].as_u64().unwrap_or_default();
    }
    same("members by role", &members.len(), &(by_role as usize))?;
    let detail = reader.data(owner, &organization).await?;
    same("members_count", &members.len(), &count(&detail, "members_count"))?;
    same("projects_count", &state.projects.len(), &count(&detail, "projects_count"))?;
    same("default_role", ORGANIZATION_ROLES[state.default_role], text(&detail["settings"], "default_role"))?;

    for project in &state.projects {
        let path = format!("{organization}/projects/{}", project.id);
        let due = named(history, &project.roles, &PROJECT_ROLES);
        let found = reader.list(owner, &format!("{path}/members"), "members").await?;
        same("project members", &due, &found)?;
        let detail = reader.data(owner, &path).await?;
        same("members_count of a project", &due.len(), &count(&detail, "members_count"))?;
    }
    for person in 0..PEOPLE {
        let role = state.roles[person];
        let path = format!("{organization}/projects");
        let mut due = BTreeMap::new();
        if role == 0 {
            reader.expect(person, &path, 403).await?;
        } else {
            let seen = state.projects.iter().map(|project| (project, state.effective(project, person)));
            let seen = seen.filter(|(_, role)| *role > 0);
            let projects: BTreeMap<_, _> = seen
                .map(|(project, role)| (project.id.to_string(), PROJECT_ROLES[role].to_owned()))
                .collect();
            same("projects of a member", &projects, &reader.list(person, &path, "projects").await?)?;
            due.insert(history.place.organization.clone(), ORGANIZATION_ROLES[role].to_owned());
        }
        let found = reader.list(person, "/v1/organizations", "organizations").await?;
        same("organizations of a user", &due, &found)?;
    }
    same("an owner's projects", &PROJECT_OWNER, &state.effective(&state.projects[0], owner))?;
    assert_invitations_match(history, state).await
}

fn named<const N: usize>(
    history: &History,
    roles: &[usize; PEOPLE],
    words: &[&str; N],
) -> BTreeMap<String, String> {
    let some = history.ids.iter().zip(roles).filter(|(_, role)| **role > 0);
    some.map(|(id, role)| (id.clone(), words[*role].to_owned())).collect()
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(what: &str, due: &T, found: &T) -> Result<(), String> {
    if due == found { Ok(()) } else { Err(format!("{what}: {due:?} in the model, not {found:?}")) }
}

fn count(data: &Value, field: &str) -> usize {
    data[field].as_u64().unwrap_or(u64::MAX) as usize
}

fn text<'a>(data: &'a Value, field: &str) -> &'a str {
    data[field].as_str().unwrap_or_default()
}

/// A reader over HTTP that alternates between both servers.
struct Reader<'a> {
    history: &'a History,
    figures: &'a mut Figures,
}

impl Reader<'_> {
    async fn expect(&mut self, person: usize, path: &str, status: u16) -> Result<Value, String> {
        self.figures.reads += 1;
        let twin = &self.history.twins[self.figures.reads % 2];
        let answer = twin.get(path).bearer(&self.history.people[person].access_token).send().await;
        if answer.status != status {
            return Err(format!("{path} for {person}: {} {}", answer.status, answer.text));
        }
        Ok(answer.json()["data"].take())
    }

    async fn data(&mut self, person: usize, path: &str) -> Result<Value, String> {
        self.expect(person, path, 200).await
    }

    /// Returns ids and roles of all pages of a list; asserts that their number equals the total of each page.
    async fn list(
        &mut self,
        person: usize,
        path: &str,
        items: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let (mut found, mut rows) = (BTreeMap::new(), 0);
        for page in 1.. {
            let data = self.data(person, &format!("{path}?page_size=4&page={page}")).await?;
            let all = data[items].as_array().ok_or("no items")?;
            rows += all.len();
            let pairs = all.iter().map(|row| (text(row, "id").to_owned(), text(row, "role").to_owned()));
            found.extend(pairs);
            let total = count(&data, "total");
            if all.len() < 4 || rows >= total {
                same(&format!("the total of {path} and its rows"), &total, &rows)?;
                same(&format!("the rows of {path} and its ids"), &rows, &found.len())?;
                break;
            }
        }
        Ok(found)
    }
}

async fn assert_nothing_is_left(history: &History) -> Result<(), String> {
    let mut tx = history.twins[0].app.db.read().await.map_err(|error| error.to_string())?;
    for table in ["organization_members", "projects", "invitations", "api_keys"] {
        let rows = sql(format!("SELECT COUNT(*) FROM {table} WHERE organization_id = $1"));
        let (rows,): (i64,) =
            rows.bind(history.place.organization.as_str()).one(&mut tx).await.map_err(|e| e.to_string())?;
        same(table, &0, &rows)?;
    }
    Ok(())
}

/// An invitation may have ended without an audit entry if its guest became a member in another way.
async fn assert_invitations_match(history: &History, state: &State) -> Result<(), String> {
    let mut tx = history.twins[0].app.db.read().await.map_err(|error| error.to_string())?;
    let rows: Vec<(String,)> =
        sql("SELECT id FROM invitations WHERE organization_id = $1 AND ended_at IS NULL")
            .bind(history.place.organization.as_str())
            .all(&mut tx)
            .await
            .map_err(|error| error.to_string())?;
    let found: BTreeSet<_> = rows.into_iter().map(|(id,)| id).collect();
    let due: BTreeSet<_> = state.invitations.iter().map(|open| open.id.to_string()).collect();
    let is_member =
        |id: &str| state.invitations.iter().any(|open| &*open.id == id && state.roles[open.guest] > 0);
    let missing = due.difference(&found).any(|id| !is_member(id));
    if missing || !found.is_subset(&due) {
        return Err(format!("open invitations: expected {due:?}, found {found:?}"));
    }
    Ok(())
}
