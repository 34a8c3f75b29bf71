//! Prompts that wait in an inbox of the store already.

use super::*;

#[test]
fn stored_prompt_leaves_its_inbox_with_its_node() {
    // The store fails, another program moved the ref, all is well, a run is under way.
    for (choices, when) in [
        (&[0_u8][..], QueueMode::Now),
        (&[8, 255], QueueMode::Now),
        (&[255], QueueMode::Now),
        (&[255], QueueMode::Steer),
    ] {
        let mut world = World::new();
        if when == QueueMode::Steer {
            world.command(Command::Prompt { input: "go".into(), when: QueueMode::Now });
            world.commit(255);
        }
        let row = (SessionId::from("elsewhere"), quipu_protocol::ItemId::from("stored"));
        world.inbox.push(row.clone());
        let reply = ReplyId(world.sent);
        world.replies.insert(reply.0, 0);
        let fresh = CommandContext {
            run: "r".into(),
            item: row.1.clone(),
            stored: Some(row.0.clone()),
            model: None,
            policy: None,
            plan: None,
            hooks: Vec::new(),
        };
        let command = Command::Prompt { input: "wait for me".into(), when };
        world.give(MachineInput::Command { command, reply, fresh });
        for choice in choices {
            assert_eq!(world.inbox, std::slice::from_ref(&row), "not before its node is there");
            world.commit(*choice);
        }
        let stays = choices == [0];
        world.finish();
        assert_eq!(world.inbox, if stays { vec![row] } else { Vec::new() }, "{choices:?} {when:?}");
        world.laws.finish().unwrap();
    }
}
